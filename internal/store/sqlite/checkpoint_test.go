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

	"plantstore/internal/plant"
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

func TestBusyTimeoutAfterCheckpoint(t *testing.T) {
	w := newWriter(t)
	reader, err := openConn(w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := errors.Join(exec(reader, "BEGIN"), exec(reader, getPlant, "main", int64(0))); err != nil {
		t.Fatal(err)
	}
	for id := range int64(restartPages*pageSize>>20 + 2) {
		w.addLarge(t, id)
	}
	w.walBytes = maxWALBytes
	w.checkpoint() // it waits for the reader in vain
	if w.walBytes != 0 || w.stopped {
		t.Errorf("after a checkpoint %d bytes are counted, stopped: %v", w.walBytes, w.stopped)
	}
	if ms, err := number(w.conn, "PRAGMA busy_timeout"); err != nil || ms != busyTimeout.Milliseconds() {
		t.Errorf("after a checkpoint busy_timeout is %d, %v", ms, err)
	}
}

func TestWALIsBounded(t *testing.T) {
	const limit, n = 24 << 20, 30 // maxWALBytes is 16 MiB
	s := newStore(t)
	large, other := plant.Plant{Name: strings.Repeat("x", 1<<20)}, plant.Plant{Name: strings.Repeat("y", 1<<20)}
	for id := range int64(n) {
		record := plant.Record{Store: "main", New: plant.New{ID: id, Plant: large}}
		if _, err := s.CreateBatch(t.Context(), []plant.Record{record}); err != nil {
			t.Fatal(err)
		}
	}
	s.writer.wantWALBelow(t, limit)
	for id := range int64(n) {
		if err := s.Replace(t.Context(), "main", id, other, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.writer.wantWALBelow(t, limit)
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
	for id := range int64(120) {
		w.addLarge(t, id)
	}
	close(stop)
	readers.Wait()
	w.wantWALBelow(t, 90<<20) // about 48 MiB; a slow reader can prevent a restart
}

// The WAL of a killed process counts toward the next checkpoint.
func TestWALOfKilledProcess(t *testing.T) {
	w := newWriter(t)
	w.addLarge(t, 1)
	killed := t.TempDir() + "/plants.db"
	copyFiles(t, w.path, killed)
	next := openWriter(t, killed)
	defer next.close()
	if pages := next.walBytes / pageSize; pages < 256 || pages > 300 {
		t.Errorf("a WAL with a plant of 256 pages counts as %d pages", pages)
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
		count("a replace", int64(2*pageSize+2*size), s.Replace(t.Context(), "main", 0, records[0].Plant, nil))
		for i := range records {
			count("a remove", pageSize, s.Remove(t.Context(), "main", int64(i), nil))
		}
	}
}

func TestCheckpointAtLimit(t *testing.T) {
	w := newWriter(t)
	const add = 2*pageSize + 1 // of one plant with a name of one byte
	for id, test := range []struct{ before, want int64 }{
		{maxWALBytes - add - 1, maxWALBytes - 1},
		{maxWALBytes - add, 0},
	} {
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
