package sqlite

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/storetest"
	"plantstore/internal/testkit/missing"
	"plantstore/internal/token"
)

// fullDisk is a file system in memory without free space.
type fullDisk struct {
	t    *testing.T
	path string // of a database on it
}

// newFullDisk mounts a file system, calls prepare with the path of a database on it, and fills it.
func newFullDisk(t *testing.T, prepare func(path string)) *fullDisk {
	t.Helper()
	folder := t.TempDir()
	mount := osexec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "plantstore-test", folder)
	if out, err := mount.CombinedOutput(); err != nil {
		missing.Report(t, "a file system cannot be mounted here: %s", out)
	}
	t.Cleanup(func() { osexec.Command("umount", "-l", folder).Run() })
	d := &fullDisk{t, filepath.Join(folder, "plants.db")}
	prepare(d.path)
	d.fill()
	return d
}

func (d *fullDisk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.path+".filler", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, pageSize))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
}

func (d *fullDisk) leave(free int64) {
	d.t.Helper()
	info, err := os.Stat(d.path + ".filler")
	if err == nil {
		err = os.Truncate(d.path+".filler", info.Size()-free)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *fullDisk) open() *Store {
	d.t.Helper()
	s, err := Open(d.t.Context(), d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { s.Close() })
	return s
}

// leaveKilled leaves a database with one plant in its WAL, as a killed process does.
func leaveKilled(t *testing.T, statements ...string) func(path string) {
	return func(path string) {
		w := newWriter(t)
		w.mustAdd(t, 1, "Fern")
		for _, statement := range statements {
			if err := exec(w.conn, statement); err != nil {
				t.Fatal(err)
			}
		}
		copyFiles(t, w.path, path)
	}
}

// leaveStopped leaves a database with one plant and without a WAL.
func leaveStopped(t *testing.T) func(path string) {
	return func(path string) {
		leaveKilled(t)(path)
		if err := openWriter(t, path).close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path + walSuffix); err == nil {
			t.Fatal("the WAL still exists")
		}
	}
}

func wantFern(t *testing.T, s *Store) {
	t.Helper()
	if p, err := s.Get(t.Context(), "main", 1); err != nil || p.Name != "Fern" {
		t.Errorf("Get() = %v, %v, want the plant that is stored", p, err)
	}
	if _, err := s.TokenByHash(t.Context(), token.Hash{}); !errors.Is(err, token.ErrUnknown) {
		t.Errorf("TokenByHash() = %v, want %v", err, token.ErrUnknown)
	}
}

// hasIndex reports whether the index of the WAL is on the disk, where other processes can use it.
func (d *fullDisk) hasIndex() bool {
	info, err := os.Stat(d.path + "-shm")
	return err == nil && info.Size() >= 32<<10
}

// lockedOut reports whether another process would find the file locked. Locks of an open file description conflict with
// those of the process, so the test needs no other process. Closing the file releases the locks of SQLite.
func (d *fullDisk) lockedOut() bool {
	d.t.Helper()
	f, err := os.Open(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	shared := unix.Flock_t{Type: unix.F_RDLCK, Start: 0x40000002, Len: 510} // SHARED_FIRST and SHARED_SIZE of SQLite
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &shared); err != nil {
		d.t.Fatal(err)
	}
	return shared.Type != unix.F_UNLCK
}

// On a full disk, a database is open for reading. When there is space, it becomes writable.
func TestStartOnFullDisk(t *testing.T) {
	t.Run("after a kill", func(t *testing.T) { testStartOnFullDisk(t, leaveKilled(t)) })
	t.Run("after a stop", func(t *testing.T) { testStartOnFullDisk(t, leaveStopped(t)) })
}

func testStartOnFullDisk(t *testing.T, prepare func(path string)) {
	d := newFullDisk(t, prepare)
	s := d.open()
	create := func() error {
		_, err := s.CreateBatch(t.Context(), []plant.Record{{Store: "main", New: plant.New{ID: 2}}})
		return err
	}
	refused := func() {
		t.Helper()
		for name, err := range map[string]error{
			"Check": s.Check(t.Context()), "CreateBatch": create(),
			"Remove": storetest.Remove(t.Context(), s, "main", 1, nil), "AddToken": s.AddToken(t.Context(), token.Token{}),
		} {
			if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "reading only until 1 MiB is free") {
				t.Errorf("%s() on a full disk = %v, want %v", name, err, errReadOnly)
			}
		}
		wantFern(t, s)
	}
	refused()
	time.Sleep(2 * checkInterval) // so that the next write tries to open the file
	refused()
	d.leave(minSpace - 8*pageSize)
	time.Sleep(2 * checkInterval)
	refused()
	if d.hasIndex() {
		t.Error("the index of the WAL is on the full disk")
	}
	d.leave(minSpace)
	waitForCheck(t, func() error { return s.Check(t.Context()) }, "")
	if err := create(); err != nil {
		t.Errorf("CreateBatch() with free space = %v", err)
	}
	wantFern(t, s)
	if !d.hasIndex() {
		t.Error("the index of the WAL is still in memory")
	}
	if d.lockedOut() {
		t.Error("other processes can't read the database")
	}
}

// A check finds the full disk before a create fails. The first frames may still fit into the last page of the WAL.
func TestCheckOnFullDisk(t *testing.T) {
	var s *Store
	d := newFullDisk(t, func(path string) { s = (&fullDisk{t, path}).open() })
	var err error
	for range 10 {
		if err = s.Check(t.Context()); err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("Check() on a full disk = %v, want %v", err, store.ErrFull)
	}
	d.leave(2 * minSpace)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check() with free space = %v", err)
	}
}

// A create detects the free space, without a readiness check.
func TestCreateAfterFullDisk(t *testing.T) {
	d := newFullDisk(t, leaveKilled(t))
	s := d.open()
	d.leave(2 * minSpace)
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err = s.CreateBatch(t.Context(), []plant.Record{{Store: "main"}}); err == nil {
			return
		}
	}
	t.Errorf("CreateBatch() with free space = %v after 30 s", err)
}

// Reads continue if the database can't be opened for writing because reads are in flight, or because it fails.
func TestReadsContinueOnFullDisk(t *testing.T) {
	d := newFullDisk(t, leaveStopped(t))
	s := d.open()
	check := func() error { return s.Check(t.Context()) }
	stop := occupy(t, s, 1)
	d.leave(2 * minSpace)
	if err := s.leaveReadOnly(); err != errReadOnly {
		t.Errorf("leaveReadOnly() during a read = %v, want %v", err, errReadOnly)
	}
	wantFern(t, s)
	d.setVersion(99)
	stop()
	waitForCheck(t, check, "its schema has version 99")
	for range 3 {
		if err := s.AddToken(t.Context(), token.Token{}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("AddToken() without a connection = %v, want %v", err, store.ErrUnavailable)
		}
	}
	wantFern(t, s)
	if d.hasIndex() {
		t.Error("the readers use an index on the disk, which may be full again")
	}
	d.setVersion(3)
	waitForCheck(t, check, "")
	wantFern(t, s)
}

// setVersion writes the user_version into the header of the file.
func (d *fullDisk) setVersion(version byte) {
	d.t.Helper()
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{0, 0, 0, version}, 60)
	if err := errors.Join(err, f.Close()); err != nil {
		d.t.Fatal(err)
	}
}

func TestFullDiskLocksOthersOut(t *testing.T) {
	d := newFullDisk(t, leaveKilled(t))
	d.open()
	if !d.lockedOut() {
		t.Error("other processes can read the database without the index of the WAL")
	}
}

// If a database can't be opened without writing to it, the error names the full disk.
func TestStartFailsOnFullDisk(t *testing.T) {
	for what, test := range map[string]struct {
		prepare func(path string)
		want    string
	}{
		"a new database":  {func(string) {}, "SQLITE_FULL"},
		"an older schema": {leaveKilled(t, "PRAGMA user_version = 1"), "free at least 1 MiB: its schema has version 1"},
		"another program": {leaveKilled(t, "PRAGMA application_id = 1"), "another program"},
	} {
		d := newFullDisk(t, test.prepare)
		_, err := Open(t.Context(), d.path)
		if !errors.Is(err, store.ErrFull) || strings.Count(err.Error(), test.want) != 1 ||
			strings.Count(err.Error(), store.ErrFull.Error()) != 1 {
			t.Errorf("Open() of %s on a full disk = %v, want %v and %q, both once", what, err, store.ErrFull, test.want)
		}
	}
}

// If the check for free space fails for another reason, a full disk is not reported.
func TestCheckSpace(t *testing.T) {
	s := newStore(t)
	if err := checkSpace(s.writer.target); err != nil {
		t.Errorf("checkSpace() = %v", err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(s.writer.target), "plantstore-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("checkSpace() leaves %v, %v", left, err)
	}
	s.writer.target = filepath.Join(t.TempDir(), "none", "plants.db")
	err = s.leaveReadOnly()
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull) || !errors.Is(err, syscall.ENOENT) ||
		strings.Contains(err.Error(), s.writer.target) {
		t.Errorf("leaveReadOnly() = %v, want %v without the path", err, store.ErrUnavailable)
	}
	for err, want := range map[error]bool{nil: false, syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EROFS: false} {
		if got := isNoSpace(err); got != want {
			t.Errorf("isNoSpace(%v) = %v", err, got)
		}
	}
}

// The index of the largest WAL fits into the space that is free when the database is opened for writing.
func TestSpaceForIndex(t *testing.T) {
	const block, frameHeader = 32 << 10, 24
	// https://sqlite.org/walformat.html#the_wal_index_file_format: a block has 4096 pages, the first one 34 fewer.
	indexSize := func(pages int64) int64 { return (pages + 34 + 4095) / 4096 * block }
	w := newWriter(t)
	w.settle() // so that no checkpoint lets the WAL restart
	for id := range int64(10) {
		w.addLarge(t, id)
	}
	log, err := w.checkpointer.copy("PASSIVE")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(w.path + shmSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if log.pages < 4096 || info.Size() != indexSize(log.pages) {
		t.Errorf("the index of %d pages has %d bytes, want %d", log.pages, info.Size(), indexSize(log.pages))
	}
	// A copy may start with maxBacklog in the WAL. As much can be committed during it, and during the next one.
	const largest = 3*maxBacklog + stepBytes
	if size := indexSize(largest / (pageSize + frameHeader)); size > minSpace {
		t.Errorf("the index of a WAL of %d MiB takes %d KiB, and %d KiB must be free", largest>>20, size>>10, minSpace>>10)
	}
}
