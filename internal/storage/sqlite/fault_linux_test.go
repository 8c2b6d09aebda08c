package sqlite

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// substitute makes the open file descriptors of a file refer to another file, which fails in a way of its own:
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
	var fds []int // all of them, before any is duplicated
	for _, entry := range open {
		if link, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && link == path {
			fd, _ := strconv.Atoi(entry.Name())
			fds = append(fds, fd)
		}
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
	originals := make(map[int]int)
	for _, fd := range fds {
		if originals[fd], err = unix.Dup(fd); err == nil {
			err = unix.Dup3(fault, fd, unix.O_CLOEXEC)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(originals) == 0 {
		t.Fatalf("%s is not open", path)
	}
	return func() {
		for fd, original := range originals {
			unix.Dup3(original, fd, unix.O_CLOEXEC)
			unix.Close(original)
		}
	}
}

// While writes fail nothing is stored and check fails, with its own probe too. Then all is well again.
func TestWritesFail(t *testing.T) {
	for _, test := range []struct {
		by, text string
		want     error
	}{
		{"/dev/full", "is full", storage.ErrFull},
		{"/etc/passwd", "a file can't be written", storage.ErrUnavailable},
	} {
		t.Run(test.by, func(t *testing.T) {
			w := testWriter(t)
			w.mustAdd(t, 1, "x")
			if err := exec(w.conn, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil { // reads need no WAL
				t.Fatal(err)
			}
			undo := substitute(t, w.files.path+"-wal", test.by)
			wantFailure(t, w, w.addPlant(2, "x"), test.want, test.text, false)
			for range 3 {
				w.tx(func() error { return plant.ErrNotFound }) // which does not show that writes succeed again
				if err := w.check(t.Context()); err == nil || !strings.Contains(err.Error(), test.text) {
					t.Errorf("check() after its probe failed = %v, want %q", err, test.text)
				}
			}
			w.lock <- struct{}{} // no probe is in flight
			undo()
			<-w.lock
			if err := w.check(t.Context()); err != nil {
				t.Errorf("check() after the file is writable again = %v", err)
			}
			w.mustAdd(t, 2, "x")
		})
	}
}

func TestCheckpointFails(t *testing.T) {
	for by, stopped := range map[string]bool{"/dev/null": true, "/dev/full": false, "/etc/passwd": false} {
		t.Run(by, func(t *testing.T) {
			w := testWriter(t)
			w.mustAdd(t, 1, "x")
			defer substitute(t, w.files.path, by)()
			w.mustAdd(t, 2, "x") // it is in the WAL
			w.checkpointNow()
			if (w.stopReason() != nil) != stopped {
				t.Errorf("after the checkpoint the writer is stopped: %v, want %v", w.stopReason(), stopped)
			}
			if err := w.check(t.Context()); stopped && (err == nil || !strings.Contains(err.Error(), "a checkpoint failed")) {
				t.Errorf("check() = %v, want the reason", err)
			}
		})
	}
}

// SQLite counts pages as copied before they are synced. If the sync fails, they count no longer, so that no process
// drops them from the WAL, and the writer stops.
func TestSyncOfCopyFails(t *testing.T) {
	w := testWriter(t)
	w.checkpointNow()
	w.mustAdd(t, 1, "x")
	if w.checkpointNow(); w.stopReason() != nil || w.copied(t) == 0 {
		t.Fatalf("stopped: %v, %d pages are copied", w.stopReason(), w.copied(t))
	}
	w.mustAdd(t, 2, "x")
	w.failSync(t)
	w.checkpointNow()
	if n := w.copied(t); n != 0 {
		t.Errorf("after the sync of the copy failed, %d pages count as copied", n)
	}
	wantFailure(t, w, w.addPlant(3, "x"), storage.ErrUnavailable, "the disk failed to sync", true)
}

// copied returns how many pages of the WAL count as copied.
func (w *writer) copied(t *testing.T) uint32 {
	t.Helper()
	index, err := os.ReadFile(w.files.path + shmSuffix)
	if err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint32(index[96:])
}

// failSync makes each sync of the checkpointer fail.
func (w *writer) failSync(t *testing.T) {
	t.Helper()
	null, err := unix.Open("/dev/null", unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, int(w.file.Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint that copies only a part of the WAL does not sync. The WAL does not restart before one has copied the
// rest and synced the file.
func TestPartialCopy(t *testing.T) {
	w := testWriter(t)
	w.checkpointNow()
	salt := func() string {
		wal, err := os.ReadFile(w.files.path + walSuffix)
		if err != nil {
			t.Fatal(err)
		}
		return string(wal[16:24]) // changes when the WAL restarts
	}
	w.mustAdd(t, 1, "x")
	first := salt()
	reader := startRead(t, w.files.path)
	w.mustAdd(t, 2, "x")
	restart := func() {
		if _, _, err := checkpoint(w.checkpointer.conn, "RESTART"); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	part := w.copied(t)
	exec(reader, "ROLLBACK")
	w.mustAdd(t, 3, "x")
	undo := substitute(t, w.files.path, "/dev/null") // it can't be truncated, which SQLite does just before the sync
	_, _, err := checkpoint(w.checkpointer.conn, "PASSIVE")
	undo()
	if sqlite.ErrCode(err) != sqlite.ResultIOErrTruncate || part == 0 || w.copied(t) != part {
		t.Errorf("%d pages count as copied, and after a copy of the rest, %v, %d", part, err, w.copied(t))
	}
	if w.mustAdd(t, 4, "x"); salt() != first {
		t.Error("the WAL restarts before the file is synced")
	}
	restart()
	if w.mustAdd(t, 5, "x"); salt() == first {
		t.Error("the WAL does not restart after the file is synced")
	}
}

// Close does not release the locks of reads that are still running: another process could otherwise remove the WAL.
func TestCloseKeepsLocksOfReads(t *testing.T) {
	t.Parallel()
	s := newStorage(t)
	other, err := os.Open(s.writer.files.path) // before Close, and closed after it: that releases all locks
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	locked := func() bool {
		exclusive := unix.Flock_t{Type: unix.F_WRLCK, Start: 0x40000002, Len: 510} // SHARED_FIRST and SHARED_SIZE of SQLite
		if err := unix.FcntlFlock(other.Fd(), unix.F_OFD_GETLK, &exclusive); err != nil {
			t.Fatal(err)
		}
		return exclusive.Type != unix.F_UNLCK
	}
	stop := occupy(t, s, 1)
	if err := s.Close(); !errors.Is(err, errInFlight) || !locked() {
		t.Errorf("Close() = %v while a read is in flight; locked: %v", err, locked())
	}
	stop()
}

// The WAL that a killed process left is copied and emptied before anything else is written. If that fails, nothing is.
func TestSettle(t *testing.T) {
	w := testWriter(t)
	w.mustAdd(t, 1, "x")
	killed := filepath.Join(t.TempDir(), "plants.db")
	copyFiles(t, w.files.path, killed, "", walSuffix)
	next := openWriter(t, killed)
	wal, err := os.Stat(killed + walSuffix)
	if err != nil || wal.Size() != 0 || !next.settled {
		t.Errorf("the WAL has %d bytes, %v; settled: %v", wal.Size(), err, next.settled)
	}
	if _, err := getFrom(next.conn, "main", 1); err != nil {
		t.Error(err)
	}
	next.settled = false
	defer substitute(t, killed+walSuffix, "/dev/null")()
	wantFailure(t, next, next.addPlant(2, "x"), storage.ErrUnknown, "the disk failed to sync", true)
}
