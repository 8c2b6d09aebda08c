package sqlite

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

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
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.lock <- struct{}{}
		for ago, want := range map[time.Duration]string{
			slowWrite: "", slowWrite + 1: "a write has waited 2 s for the disk", 4*time.Second - 1: "waited 3 s",
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
	})
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
