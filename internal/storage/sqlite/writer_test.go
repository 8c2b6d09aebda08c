package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/storagetest"
)

func testWriter(t *testing.T) *writer {
	t.Helper()
	return openWriter(t, newFile(t))
}

// newFile creates an empty database file.
func newFile(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "plants.db")
	if err := createFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func openWriter(t *testing.T, path string) *writer {
	t.Helper()
	w, err := newWriter(path, new(storage.Damage))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	if err := w.open(false, false); err != nil {
		t.Fatal(err)
	}
	return w
}

// addPlant inserts a plant in a transaction of its own.
func (w *writer) addPlant(id int64, name string) error {
	return w.tx(func() error {
		_, err := w.insert(&plant.Record{Store: "main", Plant: plant.Plant{ID: id, Content: plant.Content{Name: name}}})
		return err
	})
}

func (w *writer) mustAdd(t *testing.T, id int64, name string) {
	t.Helper()
	if err := w.addPlant(id, name); err != nil {
		t.Fatalf("a write = %v", err)
	}
}

// wantFailure checks the error of a write and what it leaves behind.
func wantFailure(t *testing.T, w *writer, err, want error, text string, stopped bool) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("a write = %v, want %v with %q", err, want, text)
	}
	if (w.stopReason() != nil) != stopped {
		t.Errorf("after %v the writer is stopped: %v, want %v", err, w.stopReason(), stopped)
	}
	if stopped {
		for _, err := range []error{w.addPlant(1000, "x"), w.check(t.Context())} {
			if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "started again") {
				t.Errorf("a write and a check after that = %v, want the reason", err)
			}
		}
	}
}

func TestFailedCommit(t *testing.T) {
	for _, test := range []struct {
		code    sqlite.ResultCode
		want    error
		stopped bool
	}{
		{sqlite.ResultBusy, storage.ErrUnavailable, false},
		{sqlite.ResultBusySnapshot, storage.ErrUnavailable, false},
		{sqlite.ResultFull, storage.ErrFull, false},
		{sqlite.ResultIOErrWrite, storage.ErrUnavailable, false},
		{sqlite.ResultIOErrSHMOpen, storage.ErrUnknown, false},
		{sqlite.ResultIOErrSHMSize, storage.ErrUnknown, false},
		{sqlite.ResultIOErrSHMLock, storage.ErrUnknown, false},
		{sqlite.ResultIOErrSHMMap, storage.ErrUnknown, false},
		{resultIOErrInPage, storage.ErrUnknown, false},
		{sqlite.ResultIOErrFsync, storage.ErrUnknown, true},
		{sqlite.ResultIOErrRead, storage.ErrUnknown, true},
		{sqlite.ResultCorrupt, storage.ErrUnknown, true},
		{sqlite.ResultError, storage.ErrUnknown, true},
	} {
		w := testWriter(t)
		wantFailure(t, w, w.commitFailed(test.code.ToError()), test.want, test.code.Message(), test.stopped)
		if test.want != storage.ErrUnknown && !w.checked.IsZero() {
			t.Errorf("%v: the next write does not check the file", test.code)
		}
	}
}

func TestFailedTransaction(t *testing.T) {
	for _, test := range []struct {
		err     error
		want    error
		stopped bool
	}{
		{plant.ErrNotFound, plant.ErrNotFound, false},
		{sqlite.ResultFull.ToError(), storage.ErrFull, false},
		{sqlite.ResultIOErrWrite.ToError(), storage.ErrUnavailable, false},
		{sqlite.ResultIOErrFsync.ToError(), storage.ErrUnavailable, true},
	} {
		w := testWriter(t)
		err := w.tx(func() error {
			if _, err := w.insert(&plant.Record{Store: "main"}); err != nil {
				return err
			}
			return test.err
		})
		wantFailure(t, w, err, test.want, test.err.Error(), test.stopped)
		if _, err := getFrom(w.conn, "main", 0); err != plant.ErrNotFound {
			t.Errorf("after a transaction that failed with %v, its plant is stored: %v", test.err, err)
		}
		if !test.stopped {
			w.mustAdd(t, 1, "x")
			if w.failed {
				t.Errorf("after a write that succeeded, the last one counts as failed with %v", test.err)
			}
		}
	}
}

// If a page of the index of the WAL can't be written, at any point of a write, no plant is lost, the writer is not
// stopped, and the error reports whether the plant may be stored.
func TestFaultInIndex(t *testing.T) {
	defer sqlite3.SehInject(0)
	kinds := map[string]int{}
	for n := int32(1); ; n++ {
		w := testWriter(t)
		w.mustAdd(t, 1, "x")
		sqlite3.SehInject(n)
		err := w.addPlant(2, "x")
		if sqlite3.SehPending() > 0 {
			break
		}
		if w.stopReason() != nil {
			t.Errorf("fault %d: the writer is stopped after %v", n, err)
		}
		w.mustAdd(t, 3, "x")
		_, absent := getFrom(w.conn, "main", 2)
		switch {
		case errors.Is(err, storage.ErrUnknown):
			kinds["unknown"]++
		case err == nil && absent == nil:
			kinds["stored"]++
		case errors.Is(err, storage.ErrUnavailable) && absent == plant.ErrNotFound:
			kinds["refused"]++
		default:
			t.Errorf("fault %d: a write = %v, and a read of its plant = %v", n, err, absent)
		}
		killed := filepath.Join(t.TempDir(), "plants.db")
		copyFiles(t, w.files.path, killed, "", walSuffix)
		next := openWriter(t, killed)
		for _, id := range []int64{1, 3} {
			if _, err := getFrom(next.conn, "main", id); err != nil {
				t.Errorf("fault %d: plant %d after a crash: %v", n, id, err)
			}
		}
		if err := next.close(); err != nil {
			t.Error(err)
		}
	}
	if len(kinds) != 3 {
		t.Errorf("outcomes %v, want stored, unknown and refused", kinds)
	}
}

// copyFiles copies files of a database, as a killed process leaves them.
func copyFiles(t *testing.T, from, to string, suffixes ...string) {
	t.Helper()
	for _, suffix := range suffixes {
		content, err := os.ReadFile(from + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPanicInTransaction(t *testing.T) {
	w := testWriter(t)
	wantFailure(t, w, w.tx(func() error { panic("a fault") }), storage.ErrUnknown, "a fault", true)
	if err := w.close(); err != nil {
		t.Errorf("close() = %v", err)
	}
}

func TestFailedRollback(t *testing.T) {
	w := testWriter(t)
	exec(w.conn, "BEGIN IMMEDIATE")
	done := make(chan struct{})
	close(done)
	w.conn.SetInterrupt(done) // every statement fails
	w.rollback()
	w.conn.SetInterrupt(nil)
	wantFailure(t, w, w.stopReason(), storage.ErrUnavailable, "a rollback failed", true)
}

// A write that never starts is busy.
func TestLockTimeout(t *testing.T) {
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		w := openWriter(t, path)
		write := func(want error, after time.Duration) {
			t.Helper()
			start := time.Now()
			if err := w.addPlant(1, "x"); !errors.Is(err, want) || time.Since(start) != after {
				t.Errorf("a write = %v after %v, want %v after %v", err, time.Since(start), want, after)
			}
		}
		w.lock <- struct{}{}
		write(storage.ErrBusy, lockTimeout)
		time.AfterFunc(time.Second, func() { <-w.lock })
		write(nil, time.Second)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// However many batches of edits follow one another, a create waits for one of them: the others find its plant.
func TestCreateWaitsForOneBatchOfEdits(t *testing.T) {
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		w := openWriter(t, path)
		s := &Storage{writer: w}
		const batches = 40
		before := make(chan int, 1)
		w.lock <- struct{}{}
		go func() { // as a Committer does
			n := 0
			for range batches {
				err := storagetest.Replace(t.Context(), s, "main", 1, plant.Content{Name: "y"}, nil)
				if errors.Is(err, plant.ErrNotFound) {
					n++
				} else if err != nil {
					t.Error(err)
				}
			}
			before <- n
		}()
		synctest.Wait()
		created := make(chan error, 1)
		go func() {
			_, err := s.CreateBatch(t.Context(), []plant.Record{{Store: "main", Plant: plant.Plant{ID: 1}}})
			created <- err
		}()
		synctest.Wait()
		<-w.lock
		if n := <-before; n != 1 {
			t.Errorf("%d of %d batches of edits preceded the create, want 1", n, batches)
		}
		if err := errors.Join(<-created, w.close()); err != nil {
			t.Error(err)
		}
	})
}
