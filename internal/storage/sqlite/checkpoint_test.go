package sqlite

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage/storagetest"
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

func (w *writer) wantWALBelow(t *testing.T, limit int64) {
	t.Helper()
	wal, err := os.Stat(w.files.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if wal.Size() > limit {
		t.Errorf("the WAL has %d MiB, want %d at most", wal.Size()>>20, limit>>20)
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

// A reader that does not end keeps the WAL from restarting. The checkpointer waits for it, and not again soon.
func TestCheckpointWaitsForReaders(t *testing.T) {
	w := testWriter(t)
	reader := startRead(t, w.files.path)
	for id := range int64(walLimit*pageSize>>20 + 2) {
		w.addLarge(t, id)
	}
	w.checkpointNow()
	waited := w.checkpointer.waited
	if w.stopReason() != nil || waited.IsZero() {
		t.Errorf("stopped: %v; waited for the reader at %v", w.stopReason(), waited)
	}
	w.addLarge(t, 1000)
	w.checkpointNow()
	if !w.checkpointer.waited.Equal(waited) && w.checkpointer.waited.Sub(waited) < restartPause {
		t.Error("it waited again soon")
	}
	exec(reader, "ROLLBACK")
	w.checkpointer.waited = time.Time{}
	w.checkpointNow()
	w.addLarge(t, 1001)
	if log, err := checkpoint(w.checkpointer.conn, "PASSIVE"); err != nil || log.pages*pageSize > 3<<20 {
		t.Errorf("after the reader has ended the WAL has %d pages, %v", log.pages, err)
	}
}

func TestWALIsBounded(t *testing.T) {
	t.Parallel()
	const limit, n = (walLimit+stepPages)*pageSize + 2<<20, 30
	s := newStorage(t)
	large, other := plant.Content{Name: strings.Repeat("x", 1<<20)}, plant.Content{Name: strings.Repeat("y", 1<<20)}
	for id := range int64(n) {
		record := plant.Record{Store: "main", Plant: plant.Plant{ID: id, Content: large}}
		if _, err := s.CreateBatch(t.Context(), []plant.Record{record}); err != nil {
			t.Fatal(err)
		}
		s.writer.checkpointNow()
	}
	s.writer.wantWALBelow(t, limit)
	for id := range int64(n) {
		if err := storagetest.Replace(t.Context(), s, "main", id, other, nil); err != nil {
			t.Fatal(err)
		}
		s.writer.checkpointNow()
	}
	s.writer.wantWALBelow(t, limit)
}

// With a reader at every moment the WAL does not restart by itself.
func TestWALIsBoundedDuringReads(t *testing.T) {
	t.Parallel()
	w := testWriter(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		conn, err := openReadOnly(w.files.path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		readers.Go(func() {
			for ended := false; !ended; {
				if err := errors.Join(exec(conn, "BEGIN"), exec(conn, "SELECT count(*) FROM tokens")); err != nil {
					t.Error(err)
				}
				select {
				case <-stop:
					ended = true
				case <-time.After(5 * time.Millisecond):
				}
				exec(conn, "ROLLBACK")
			}
		})
	}
	for id := range int64(150) {
		w.addLarge(t, id)
		w.checkpointer.waited = time.Time{} // a slow reader must not count
		w.checkpointNow()
	}
	close(stop)
	readers.Wait()
	w.wantWALBelow(t, 100<<20) // about 20 MiB; a slow reader can prevent a restart
}
