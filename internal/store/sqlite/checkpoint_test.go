package sqlite

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/storetest"
)

// addLarge stores a plant of 1 MiB that SQLite generates, which is faster than passing it as a parameter.
func (w *writer) addLarge(t *testing.T, id int64) {
	t.Helper()
	const size = 1 << 20
	err := w.tx(func() error {
		w.walBytes += size
		return exec(w.conn, "INSERT INTO plants (store, id, name) VALUES ('main', ?, CAST(zeroblob(?) AS TEXT))",
			id, int64(size))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *writer) wantWALBelow(t *testing.T, limit int64) {
	t.Helper()
	wal, err := os.Stat(w.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if wal.Size() > limit {
		t.Errorf("the WAL has %d MiB, want %d at most", wal.Size()>>20, limit>>20)
	}
}

// settle makes a checkpoint and returns when it has ended. From then on only settle makes any.
func (w *writer) settle() {
	c := w.checkpointer
	if c.stop(); c.failure != "" {
		w.stop(c.failure)
		return
	}
	c.quit, c.stop = make(chan struct{}), func() {}
	select {
	case <-c.wake:
	default:
	}
	w.checkpoint(c)
}

// startRead returns a connection with an open read transaction.
func startRead(t *testing.T, path string) *sqlite.Conn {
	t.Helper()
	reader, err := openConn(path)
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
	w := newWriter(t)
	reader := startRead(t, w.path)
	for id := range int64(walLimit>>20 + 2) {
		w.addLarge(t, id)
	}
	w.settle()
	waited := w.checkpointer.waited
	if w.stopped || waited.IsZero() {
		t.Errorf("stopped: %v; waited for the reader at %v", w.stopped, waited)
	}
	w.addLarge(t, 1000)
	w.settle()
	if !w.checkpointer.waited.Equal(waited) && w.checkpointer.waited.Sub(waited) < restartPause {
		t.Error("it waited again soon")
	}
	exec(reader, "ROLLBACK")
	w.checkpointer.waited = time.Time{}
	w.settle()
	w.addLarge(t, 1001)
	if log, err := w.checkpointer.copy("PASSIVE"); err != nil || log.pages*pageSize > 3<<20 {
		t.Errorf("after the reader has ended the WAL has %d pages, %v", log.pages, err)
	}
}

func TestWALIsBounded(t *testing.T) {
	const limit, n = walLimit + stepBytes + 2<<20, 30
	s := newStore(t)
	large, other := plant.Plant{Name: strings.Repeat("x", 1<<20)}, plant.Plant{Name: strings.Repeat("y", 1<<20)}
	for id := range int64(n) {
		record := plant.Record{Store: "main", New: plant.New{ID: id, Plant: large}}
		if _, err := s.CreateBatch(t.Context(), []plant.Record{record}); err != nil {
			t.Fatal(err)
		}
		s.writer.settle()
	}
	s.writer.wantWALBelow(t, limit)
	for id := range int64(n) {
		if err := storetest.Replace(t.Context(), s, "main", id, other, nil); err != nil {
			t.Fatal(err)
		}
		s.writer.settle()
	}
	s.writer.wantWALBelow(t, limit)
}

// A commit waits for a copy during which too much was written.
func TestBacklog(t *testing.T) {
	w := newWriter(t)
	w.settle()
	w.checkpointer.copying.Lock()
	w.checkpointer.wake <- struct{}{}
	w.walBytes = maxBacklog - 3*pageSize
	w.mustAdd(t, 1, "x") // below the limit
	added := make(chan error, 1)
	go func() { added <- w.addPlant(2, "x") }()
	select {
	case err := <-added:
		w.checkpointer.copying.Unlock()
		t.Fatalf("a commit did not wait, %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	w.checkpointer.copying.Unlock()
	if err := <-added; err != nil {
		t.Error(err)
	}
}

// With a reader at every moment the WAL does not restart by itself.
func TestWALIsBoundedDuringReads(t *testing.T) {
	w := newWriter(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		conn, err := openConn(w.path)
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
		w.settle()
	}
	close(stop)
	readers.Wait()
	w.wantWALBelow(t, 100<<20) // about 20 MiB; a slow reader can prevent a restart
}

// The WAL of a killed process counts toward the next checkpoint.
func TestWALOfKilledProcess(t *testing.T) {
	w := newWriter(t)
	w.addLarge(t, 1)
	killed := t.TempDir() + "/plants.db"
	copyFiles(t, w.path, killed)
	next := openWriter(t, killed)
	defer next.close()
	if pages := next.walBytes / pageSize; pages < 512 || pages > 600 {
		t.Errorf("a WAL with a plant of 512 pages counts as %d pages", pages)
	}
}

// Names and tags count, of creates and of replaces, whether or not they fill a page.
func TestCountBytes(t *testing.T) {
	s := newStore(t)
	s.writer.walBytes = 0
	count := func(what string, want int64, err error) {
		t.Helper()
		if err != nil || s.writer.walBytes != want {
			t.Errorf("%s counts as %d bytes, %v, want %d", what, s.writer.walBytes, err, want)
		}
		s.writer.walBytes = 0
	}
	for _, size := range []int{0, 1, 3000, pageSize, 10 * pageSize} {
		text := strings.Repeat("x", size)
		records := make([]plant.Record, 3)
		for i := range records {
			records[i] = plant.Record{Store: "main", New: plant.New{ID: int64(i), Plant: plant.Plant{Name: text, Tag: &text}}}
		}
		_, err := s.CreateBatch(t.Context(), records)
		count("a create of 3", int64(4*pageSize+6*size), err)
		count("a replace", int64(2*pageSize+2*size), storetest.Replace(t.Context(), s, "main", 0, records[0].Plant, nil))
		for i := range records {
			count("a remove", 2*pageSize, storetest.Remove(t.Context(), s, "main", int64(i), nil))
		}
	}
}

func TestCheckpointAfterStep(t *testing.T) {
	w := newWriter(t)
	const add = 2*pageSize + 1 // of one plant with a name of one byte
	for id, test := range []struct{ before, want int64 }{
		{stepBytes - add - 1, stepBytes - 1},
		{stepBytes - add, 0},
	} {
		w.settle()
		w.walBytes = test.before
		w.mustAdd(t, int64(id), "x")
		if w.walBytes != test.want {
			t.Errorf("after %d bytes and a commit %d are counted, want %d", test.before, w.walBytes, test.want)
		}
	}
}

// After a commit, the index of the WAL has a read mark for it: readers find it and need not write one.
func TestReadMark(t *testing.T) {
	w := newWriter(t)
	w.mustAdd(t, 1, "x")
	index, err := os.ReadFile(w.path + "-shm")
	if err != nil {
		t.Fatal(err)
	}
	// The layout is in https://sqlite.org/walformat.html#the_wal_index_file_format.
	number := func(offset int) uint32 { return binary.NativeEndian.Uint32(index[offset:]) }
	last := number(16)
	if marks := []uint32{number(104), number(108), number(112), number(116)}; !slices.Contains(marks, last) {
		t.Errorf("the last page is %d and the read marks are %v", last, marks)
	}
}

// Files of earlier versions have larger pages, and keep them.
func TestOtherPageSize(t *testing.T) {
	path := t.TempDir() + "/plants.db"
	if err := createFile(path); err != nil {
		t.Fatal(err)
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(exec(conn, "PRAGMA page_size = 4096"), exec(conn, "VACUUM"), conn.Close()); err != nil {
		t.Fatal(err)
	}
	w := openWriter(t, path)
	defer w.close()
	w.walBytes = 0
	w.mustAdd(t, 1, "x")
	if w.pageSize != 4096 || w.walBytes != 2*4096+1 {
		t.Errorf("pages have %d bytes, and a create counts as %d", w.pageSize, w.walBytes)
	}
}

// A panic stops the writer, not the process.
func TestPanicInCheckpoint(t *testing.T) {
	w := newWriter(t)
	w.mustAdd(t, 1, "x")
	w.settle()
	var observed error
	observe := func(_ time.Duration, err error) { observed = err }
	w.observeCheckpoint.Store(&observe)
	w.checkpointer.conn = new(sqlite.Conn)
	w.settle()
	err := w.addPlant(2, "x")
	wantFailure(t, w, err, store.ErrUnavailable, "the checkpoint panicked: runtime error: ", true)
	if strings.Contains(err.Error(), "goroutine") {
		t.Errorf("the reason has the stack: %v", err)
	}
	if observed == nil || !strings.Contains(observed.Error(), "goroutine") {
		t.Errorf("the observer gets %v, want the stack", observed)
	}
}
