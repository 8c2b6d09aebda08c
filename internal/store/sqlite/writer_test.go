package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/token"
)

func newWriter(t *testing.T) *writer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plants.db")
	if err := createFile(path); err != nil {
		t.Fatal(err)
	}
	w, err := openWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	return w
}

// addPlant inserts a plant in a transaction of its own.
func (w *writer) addPlant(id int64, name string) error {
	return w.tx(func() error {
		_, err := w.insert(&plant.Record{Store: "main", New: plant.New{ID: id, Plant: plant.Plant{Name: name}}})
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
	if w.stopped != stopped {
		t.Errorf("after %v the writer is stopped: %v, want %v", err, w.stopped, stopped)
	}
	if stopped {
		for _, err := range []error{w.addPlant(1000, "x"), w.check()} {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "started again") {
				t.Errorf("a write and a check after that = %v, want the reason", err)
			}
		}
	}
}

// waitForCheck waits until check returns an error that contains text, or nil where text is empty.
func waitForCheck(t *testing.T, check func() error, text string) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		err = check()
		if text == "" && err == nil || text != "" && err != nil && strings.Contains(err.Error(), text) {
			return
		}
	}
	t.Fatalf("check() = %v after 30 s, want %q", err, text)
}

func TestFailedCommit(t *testing.T) {
	for _, test := range []struct {
		code    sqlite.ResultCode
		want    error
		stopped bool
	}{
		{sqlite.ResultBusy, store.ErrUnavailable, false},
		{sqlite.ResultBusySnapshot, store.ErrUnavailable, false},
		{sqlite.ResultFull, store.ErrFull, false},
		{sqlite.ResultIOErrWrite, store.ErrUnavailable, false},
		{sqlite.ResultIOErrSHMOpen, store.ErrUnknown, false},
		{sqlite.ResultIOErrSHMSize, store.ErrUnknown, false},
		{sqlite.ResultIOErrSHMLock, store.ErrUnknown, false},
		{sqlite.ResultIOErrSHMMap, store.ErrUnknown, false},
		{sqlite.ResultIOErrFsync, store.ErrUnknown, true},
		{sqlite.ResultIOErrRead, store.ErrUnknown, true},
		{sqlite.ResultCorrupt, store.ErrUnknown, true},
		{sqlite.ResultError, store.ErrUnknown, true},
	} {
		w := newWriter(t)
		wantFailure(t, w, w.commitFailed(test.code.ToError()), test.want, test.code.Message(), test.stopped)
		if test.want != store.ErrUnknown && !w.checked.IsZero() {
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
		{sqlite.ResultFull.ToError(), store.ErrFull, false},
		{sqlite.ResultIOErrWrite.ToError(), store.ErrUnavailable, false},
		{sqlite.ResultIOErrFsync.ToError(), store.ErrUnavailable, true},
	} {
		w := newWriter(t)
		err := w.tx(func() error {
			if _, err := w.insert(&plant.Record{Store: "main"}); err != nil {
				return err
			}
			return test.err
		})
		wantFailure(t, w, err, test.want, test.err.Error(), test.stopped)
		if _, err := w.plant("main", 0); err != plant.ErrNotFound {
			t.Errorf("after a transaction that failed with %v, its plant is stored: %v", test.err, err)
		}
		if !test.stopped {
			w.mustAdd(t, 1, "x")
			if err := w.lastFailure(); err != nil {
				t.Errorf("after a write that succeeded the failure is %v", err)
			}
		}
	}
}

func TestPanicInTransaction(t *testing.T) {
	w := newWriter(t)
	wantFailure(t, w, w.tx(func() error { panic("a fault") }), store.ErrUnknown, "a fault", true)
	if err := w.close(); err != nil {
		t.Errorf("close() = %v", err)
	}
}

func TestFailedRollback(t *testing.T) {
	w := newWriter(t)
	exec(w.conn, "BEGIN IMMEDIATE")
	done := make(chan struct{})
	close(done)
	w.conn.SetInterrupt(done) // every statement fails
	w.rollback()
	w.conn.SetInterrupt(nil)
	wantFailure(t, w, w.lastFailure(), store.ErrUnavailable, "a rollback failed", true)
}

func TestRecord(t *testing.T) {
	w := newWriter(t)
	for _, err := range []error{store.ErrFull, store.ErrUnavailable, store.ErrUnknown} {
		w.record(fmt.Errorf("a write: %w", err))
		if got := w.lastFailure(); !errors.Is(got, err) {
			t.Errorf("after %v the failure is %v", err, got)
		}
		w.record(plant.ErrNotFound) // the database did what it should
		if got := w.lastFailure(); got != nil {
			t.Errorf("after a plant was not found the failure is %v", got)
		}
	}
	w.stop("a test")
	w.record(nil)
	if w.lastFailure() == nil {
		t.Error("a stopped writer has no failure")
	}
}

func TestFileRemovedOrReplaced(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { os.Remove(path); return createFile(path) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			if err := change(w.path); err != nil {
				t.Fatal(err)
			}
			if err := w.check(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), fileRemoved) {
				t.Errorf("check() = %v, want %q", err, fileRemoved)
			}
			w.checked = time.Time{}
			wantFailure(t, w, w.addPlant(1, "x"), store.ErrUnavailable, fileRemoved, true)
		})
	}
}

// A write checks the file at most once in checkInterval.
func TestCheckInterval(t *testing.T) {
	w := newWriter(t)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.checked = time.Now().Add(time.Hour)
	w.mustAdd(t, 1, "x")
	w.checked = time.Now().Add(-2 * checkInterval)
	before := w.checked
	wantFailure(t, w, w.addPlant(2, "x"), store.ErrUnavailable, fileRemoved, true)
	if !w.checked.After(before) {
		t.Error("the time of the check is not recorded")
	}
}

func TestCheckOfSlowWrite(t *testing.T) {
	w := newWriter(t)
	w.lock <- struct{}{}
	for ago, want := range map[time.Duration]string{
		slowWrite - time.Second: "", 3*time.Second + 500*time.Millisecond: "a write has waited 3 s for the disk",
	} {
		started := time.Now().Add(-ago)
		w.started.Store(&started)
		err := w.check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("check() %v after a write started = %v, want %q", ago, err, want)
		}
	}
	<-w.lock
	w.mustAdd(t, 1, "x")
	if w.started.Load() != nil {
		t.Error("a write that ended is in flight")
	}
}

// The probe of a check finds a file that another process locks, and that it is free again.
func TestCheckFindsLock(t *testing.T) {
	w := newWriter(t)
	w.conn.SetBusyTimeout(time.Millisecond)
	other, err := openConn(w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := exec(other, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	waitForCheck(t, w.check, "locked")
	if err := exec(other, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	waitForCheck(t, w.check, "")
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
	large := strings.Repeat("x", 1<<20)
	for id := range int64(restartPages*pageSize>>20 + 2) {
		w.mustAdd(t, id, large)
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

// An edit that never starts is busy, one that the disk does not confirm is unknown.
func TestEditTimeouts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	if err := createFile(path); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w, err := openWriter(path)
		if err != nil {
			t.Fatal(err)
		}
		edit := func(do func() error, want error, after time.Duration) {
			t.Helper()
			start := time.Now()
			if err := w.edit(do); !errors.Is(err, want) || time.Since(start) != after {
				t.Errorf("edit() = %v after %v, want %v after %v", err, time.Since(start), want, after)
			}
		}
		nothing := func() error { return nil }
		edit(nothing, nil, 0)
		w.lock <- struct{}{}
		edit(nothing, store.ErrBusy, lockTimeout)
		<-w.lock
		w.editLock <- struct{}{}
		edit(nothing, store.ErrBusy, lockTimeout-time.Second)
		<-w.editLock
		edit(func() error { time.Sleep(time.Minute); return nil }, store.ErrUnknown, editTimeout)
		time.Sleep(time.Hour)
		edit(nothing, nil, 0)
		w.editLock <- struct{}{}
		time.AfterFunc(time.Second, func() { <-w.editLock })
		edit(nothing, nil, time.Second)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// A failed statement is reported as what it is: not as an absent plant, an unknown token or a name that is taken.
func TestBrokenTables(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.writer.tx(func() error {
		return errors.Join(exec(s.writer.conn, "DROP TABLE plants"), exec(s.writer.conn, "DROP TABLE tokens"))
	}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, createErr := s.CreateBatch(ctx, []plant.Record{{Store: "main"}})
	_, getErr := s.Get(ctx, "main", 1)
	_, listErr := s.List(ctx, "main", nil, 1)
	_, countErr := s.Count(ctx, "main")
	_, tokenErr := s.TokenByHash(ctx, token.Hash{})
	_, tokensErr := s.Tokens(ctx)
	for name, err := range map[string]error{
		"CreateBatch": createErr, "Get": getErr, "List": listErr, "Count": countErr,
		"TokenByHash": tokenErr, "Tokens": tokensErr,
		"Replace":     s.Replace(ctx, "main", 1, plant.Plant{}, nil),
		"Remove":      s.Remove(ctx, "main", 1, nil),
		"AddToken":    s.AddToken(ctx, token.Token{Created: time.Now()}),
		"RevokeToken": s.RevokeToken(ctx, "x", time.Now()),
		"Check":       s.Check(ctx),
	} {
		if err == nil || !strings.Contains(err.Error(), "no such table") {
			t.Errorf("%s without its table = %v, want an error about the table", name, err)
		}
	}
}

func TestTranslate(t *testing.T) {
	for code, want := range map[sqlite.ResultCode]string{
		sqlite.ResultFull:         "the disk of the database is full",
		sqlite.ResultNotADB:       "damaged",
		sqlite.ResultCorrupt:      "damaged",
		sqlite.ResultCorruptVTab:  "damaged",
		sqlite.ResultBusy:         "locked",
		sqlite.ResultBusySnapshot: "locked",
		sqlite.ResultLocked:       "locked",
		sqlite.ResultReadOnly:     "SQLITE_READONLY",
		sqlite.ResultCantOpen:     "SQLITE_CANTOPEN",
		sqlite.ResultIOErrMMap:    "SQLITE_IOERR_MMAP",
		sqlite.ResultPerm:         "SQLITE_PERM",
		sqlite.ResultNoMem:        "SQLITE_NOMEM",
		sqlite.ResultTooBig:       "SQLITE_TOOBIG",
		sqlite.ResultIOErrFsync:   "the disk failed to sync",
		sqlite.ResultIOErrWrite:   "a file can't be written",
		sqlite.ResultIOErrRead:    "a file can't be read",
	} {
		err := translate(fmt.Errorf("a step: %w", code.ToError()))
		wantErr := store.ErrUnavailable
		if code == sqlite.ResultFull {
			wantErr = store.ErrFull
		}
		if !errors.Is(err, wantErr) || !strings.Contains(err.Error(), want) || sqlite.ErrCode(err) != code {
			t.Errorf("translate(%v) = %v, want %v with %q", code, err, wantErr, want)
		}
	}
	for _, err := range []error{nil, plant.ErrNotFound, sqlite.ResultConstraint.ToError()} {
		if got := translate(err); got != err {
			t.Errorf("translate(%v) = %v, want it unchanged", err, got)
		}
	}
}
