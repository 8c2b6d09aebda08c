package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
)

// addLarge stores a plant of 1 MiB that SQLite generates, which is faster than passing it as a parameter.
func (w *writer) addLarge(t *testing.T, id int64) {
	t.Helper()
	const size = 1 << 20
	err := w.tx(func() error {
		return exec(w.conn, "INSERT INTO plants (store, id, name) VALUES ('main', ?, CAST(zeroblob(?) AS TEXT))",
			id, int64(size))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkpointNow makes a checkpoint and returns when it has ended. From then on only checkpointNow makes any.
func (w *writer) checkpointNow() {
	c := w.checkpointer
	c.end()
	c.quit = context.Background() // so that the checkpoint can take the lock
	c.make(w)
}

// startRead returns a connection with an open read transaction.
func startRead(t *testing.T, path string) *sqlite.Conn {
	t.Helper()
	reader, err := openReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	if err := errors.Join(exec(reader, "BEGIN"), exec(reader, getPlant, "main", int64(0))); err != nil {
		t.Fatal(err)
	}
	return reader
}

// A reader that does not end keeps the WAL from restarting. The checkpointer waits for it once: then it does not keep
// commits waiting. It waits for readers that do end, so that the WAL restarts although there is one at every moment.
func TestCheckpointWaitsForReaders(t *testing.T) {
	w := testWriter(t)
	if wait, err := number(w.checkpointer.conn, "PRAGMA busy_timeout"); wait != restartWait.Milliseconds() {
		t.Errorf("commits wait up to %d ms for readers, %v; want %v", wait, err, restartWait)
	}
	w.mustAdd(t, 0, "x")
	reader := startRead(t, w.files.path)
	for id := range int64(walLimit*pageSize>>20 + 2) {
		w.addLarge(t, id+1)
	}
	w.checkpointNow()
	w.checkpointer.due()
	if w.checkpointer.due() {
		t.Error("a checkpoint is due again although nothing was written since the last one")
	}
	w.addLarge(t, 1000)
	w.lock <- struct{}{} // as a commit does
	ended := make(chan struct{})
	go func() { w.checkpointNow(); close(ended) }()
	select {
	case <-ended:
		<-w.lock
	case <-time.After(30 * time.Second):
		<-w.lock
		<-ended
		t.Error("it waits again")
	}
	next := startRead(t, w.files.path)
	w.mustAdd(t, 1001, "x")
	exec(reader, "ROLLBACK")
	w.checkpointer.conn.SetBusyTimeout(30 * time.Second)
	var end sync.WaitGroup
	end.Go(func() {
		for range 10_000 {
			if time.Sleep(time.Millisecond); len(w.lock) > 0 {
				break
			}
		}
		exec(next, "ROLLBACK")
	})
	w.checkpointNow()
	w.mustAdd(t, 1002, "x")
	defer end.Wait()
	pages, _, err := checkpoint(w.checkpointer.conn, "NOOP")
	if err != nil || pages > restPages || w.stopReason() != nil {
		t.Errorf("after the readers have ended the WAL has %d pages, %v; stopped: %v", pages, err, w.stopReason())
	}
}

func TestWALIsBounded(t *testing.T) {
	w := testWriter(t)
	conn := startRead(t, w.files.path)
	exec(conn, "ROLLBACK")
	for id, before := int64(0), int64(0); ; id++ {
		w.addLarge(t, id)
		pages, _, err := checkpoint(conn, "NOOP")
		if err != nil || pages > 4*maxWAL {
			t.Fatalf("the WAL has %d pages, %v", pages, err)
		}
		if pages < before && before >= walLimit {
			return
		}
		before = pages
	}
}
