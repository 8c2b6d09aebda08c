package sqlite

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plantstore/internal/store"
)

// substitute makes the open file descriptor of a file refer to another file, which fails in a way of its own:
//
//	/dev/full: writes fail, the disk is full
//	/dev/null: writes succeed, a sync fails
//	a file opened for reading: writes fail
//
// The function that it returns undoes that.
func substitute(t *testing.T, path, by string) (undo func()) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		if link, err := os.Readlink("/proc/self/fd/" + entry.Name()); err != nil || link != path {
			continue
		}
		var fd int
		fmt.Sscan(entry.Name(), &fd)
		original, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		mode := unix.O_RDWR
		if !strings.HasPrefix(by, "/dev/") {
			mode = unix.O_RDONLY
		}
		fault, err := unix.Open(by, mode, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fault)
		if err := unix.Dup3(fault, fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return func() {
			unix.Dup3(original, fd, unix.O_CLOEXEC)
			unix.Close(original)
		}
	}
	t.Fatalf("%s is not open", path)
	return nil
}

// While writes fail nothing is stored and check fails, with its own probe too. Then all is well again.
func TestWritesFail(t *testing.T) {
	for _, test := range []struct {
		by, text string
		want     error
	}{
		{"/dev/full", "is full", store.ErrFull},
		{"/etc/passwd", "a file can't be written", store.ErrUnavailable},
	} {
		t.Run(test.by, func(t *testing.T) {
			w := newWriter(t)
			w.mustAdd(t, 1, "x")
			if err := exec(w.conn, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil { // reads need no WAL
				t.Fatal(err)
			}
			undo := substitute(t, w.path+"-wal", test.by)
			wantFailure(t, w, w.addPlant(2, "x"), test.want, test.text, false)
			for range 3 {
				w.probe(true)
				if err := w.check(); err == nil || !strings.Contains(err.Error(), test.text) {
					t.Errorf("check() after its probe failed = %v, want %q", err, test.text)
				}
			}
			w.lock <- struct{}{} // no probe is in flight
			undo()
			<-w.lock
			waitForCheck(t, w.check, "")
			w.mustAdd(t, 2, "x")
		})
	}
}

func TestSyncOfCommitFails(t *testing.T) {
	w := newWriter(t)
	w.mustAdd(t, 1, "x")
	defer substitute(t, w.path+"-wal", "/dev/null")()
	wantFailure(t, w, w.addPlant(2, "x"), store.ErrUnknown, "the disk failed to sync", true)
}

func TestCheckpointFails(t *testing.T) {
	for by, stopped := range map[string]bool{"/dev/null": true, "/dev/full": false, "/etc/passwd": false} {
		t.Run(by, func(t *testing.T) {
			w := newWriter(t)
			w.mustAdd(t, 1, "x")
			defer substitute(t, w.path, by)()
			w.walBytes = maxWALBytes
			w.mustAdd(t, 2, "x") // it is in the WAL
			if w.stopped != stopped {
				t.Errorf("after the checkpoint the writer is stopped: %v, %v, want %v", w.stopped, w.lastFailure(), stopped)
			}
			if err := w.check(); stopped && (err == nil || !strings.Contains(err.Error(), "a checkpoint failed")) {
				t.Errorf("check() = %v, want the reason", err)
			}
		})
	}
}

func TestInMemory(t *testing.T) {
	for path, want := range map[string]bool{"/dev/shm": true, "/": false, "/sys/none": false} {
		if got := InMemory(path); got != want {
			t.Errorf("InMemory(%s) = %v, want %v", path, got, want)
		}
	}
}
