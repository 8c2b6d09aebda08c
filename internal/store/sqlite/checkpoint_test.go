package sqlite

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
)

// addLarge stores a plant of 1 MiB that the engine makes itself, which is faster than to pass it.
func (w *writer) addLarge(t *testing.T, id int64) {
	t.Helper()
	const size = 1 << 20
	err := w.tx(func() error {
		w.walPages += size / pageSize
		return exec(w.conn, "INSERT INTO plants (store, id, name) VALUES ('main', ?, CAST(zeroblob(?) AS TEXT))",
			id, int64(size))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *writer) wantLogBelow(t *testing.T, limit int64) {
	t.Helper()
	log, err := os.Stat(w.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if log.Size() > limit {
		t.Errorf("the log has %d MiB, want %d at most", log.Size()>>20, limit>>20)
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
	w.walPages = maxWALPages
	w.checkpoint() // it waits for the reader in vain
	if w.walPages != 0 || w.stopped {
		t.Errorf("after a checkpoint %d pages are counted, stopped: %v", w.walPages, w.stopped)
	}
	if ms, err := w.number("PRAGMA busy_timeout"); err != nil || ms != busyTimeout.Milliseconds() {
		t.Errorf("after a checkpoint busy_timeout is %d, %v", ms, err)
	}
}

func TestLogIsBounded(t *testing.T) {
	const limit, n = 24 << 20, 30 // maxWALPages are 16 MiB
	s := newStore(t)
	large, other := plant.Plant{Name: strings.Repeat("x", 1<<20)}, plant.Plant{Name: strings.Repeat("y", 1<<20)}
	for id := range int64(n) {
		record := plant.Record{Store: "main", New: plant.New{ID: id, Plant: large}}
		if _, err := s.CreateBatch(t.Context(), []plant.Record{record}); err != nil {
			t.Fatal(err)
		}
	}
	s.writer.wantLogBelow(t, limit)
	for id := range int64(n) {
		if err := s.Replace(t.Context(), "main", id, other, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.writer.wantLogBelow(t, limit)
}

// With a reader at every moment the log does not restart by itself.
func TestLogIsBoundedDuringReads(t *testing.T) {
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
	w.wantLogBelow(t, 90<<20) // about 48 MiB; a slow reader can prevent a restart
}

// The log of a killed process counts toward the next checkpoint.
func TestLogOfKilledProcess(t *testing.T) {
	w := newWriter(t)
	w.addLarge(t, 1)
	killed := filepath.Join(t.TempDir(), "plants.db")
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(w.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(killed+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next, err := openWriter(killed)
	if err != nil {
		t.Fatal(err)
	}
	defer next.close()
	if pages := next.walPages; pages < 256 || pages > 300 {
		t.Errorf("a log with a plant of 256 pages counts as %d pages", pages)
	}
}

// Names and tags count, of creates and of replaces.
func TestCountPagesOfStore(t *testing.T) {
	s := newStore(t)
	large := strings.Repeat("x", 10*pageSize)
	count := func(what string, want int, err error) {
		t.Helper()
		if err != nil || s.writer.walPages != want {
			t.Errorf("%s counts as %d pages, %v, want %d", what, s.writer.walPages, err, want)
		}
		s.writer.walPages = 0
	}
	s.writer.walPages = 0
	record := plant.Record{Store: "main", New: plant.New{Plant: plant.Plant{Name: large, Tag: &large}}}
	_, err := s.CreateBatch(t.Context(), []plant.Record{record})
	count("a create", 22, err)
	count("a replace", 22, s.Replace(t.Context(), "main", 0, record.Plant, nil))
	count("a remove", 1, s.Remove(t.Context(), "main", 0, nil))
}

func TestCountPages(t *testing.T) {
	w := newWriter(t)
	for size, want := range map[int]int{0: 1, pageSize - 1: 1, pageSize: 2, 10 * pageSize: 11} {
		w.walPages = 0
		w.countPages(plant.Plant{Name: strings.Repeat("x", size)})
		if w.walPages != want {
			t.Errorf("a plant of %d bytes counts as %d pages, want %d", size, w.walPages, want)
		}
	}
	w.walPages = 0
	w.mustAdd(t, 1, "x")
	if w.walPages != 2 {
		t.Errorf("a commit of one plant counts as %d pages, want 2", w.walPages)
	}
	w.walPages = maxWALPages - 2
	w.mustAdd(t, 2, "x")
	if w.walPages != 0 {
		t.Errorf("at %d pages there was no checkpoint", maxWALPages)
	}
}

// After a commit, the index of the log has a read mark for it: readers find it and need not write one.
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
