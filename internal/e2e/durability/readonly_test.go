//go:build linux

package durability

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// On a disk that fills up, first a checkpoint fails and then the WAL cannot grow. Neither loses a plant or ends the
// service, and it continues when space is free again.
func TestVolumeFull(t *testing.T) {
	t.Parallel()
	v := testkit.NewVolume(t, 128<<20)
	db := v.Path("plants.db")
	s := testkit.StartFixed(t, db)
	v.Fill(20 << 20)
	r := newRecord(60_000)
	var id int64
	for id = 1; id < 1000 && r.create(t, s, id) == 200; id++ {
	}
	if r.responses[50304] != 1 {
		t.Fatalf("responses %v, want 200 and then one 50304", r.responses)
	}
	if size := fileSize(t, db); size < 1<<20 {
		t.Errorf("the file has %d bytes: no checkpoint ran before the disk was full", size)
	}
	waitNotReady(t, s, "full")
	wantRead(t, s, 1)
	if err := os.Remove(v.Path("filler")); err != nil {
		t.Fatal(err)
	}
	r.waitAcknowledged(t, s, id)
	s.WaitReady(t, true)
	for id++; id < 600; id++ { // past the next checkpoint
		if r.create(t, s, id) != 200 {
			t.Fatalf("responses %v after space was freed", r.responses)
		}
	}
	if size := fileSize(t, db); size < 20<<20 {
		t.Errorf("the file has %d bytes: no checkpoint ran after space was freed", size)
	}
	s.Kill()
	testkit.StartFixed(t, db)
	r.check(t, db)
}

// A killed service starts on a full disk and serves reads. When space is free again it accepts creates, and other
// processes can use the database.
func TestStartOnFullDisk(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{16 << 20, 640 << 20} { // with blocks of 1 KiB and of 4 KiB
		t.Run(fmt.Sprint(size>>20, " MiB"), func(t *testing.T) {
			t.Parallel()
			v := testkit.NewVolume(t, size)
			db := v.Path("plants.db")
			s := testkit.StartFixed(t, db)
			r := newRecord(1000)
			for id := range int64(20) {
				r.want(t, s, id, 200)
			}
			s.Kill()
			if err := os.Remove(db + "-shm"); err != nil { // otherwise a new index could use its blocks
				t.Fatal(err)
			}
			fillUp(t, v)
			s = testkit.StartFixed(t, db)
			wantNotReady(t, s, "full: the database is open for reading only")
			testkit.WaitFor(t, "a warning in the log", func() bool {
				return strings.Contains(s.Stderr.String(), `"not ready","reason":"the disk`)
			})
			for id := range int64(20) {
				wantRead(t, s, id)
			}
			r.want(t, s, 100, 50304)
			if err := os.Remove(v.Path("filler")); err != nil {
				t.Fatal(err)
			}
			s.WaitReady(t, true)
			r.want(t, s, 100, 200)
			if _, errs, code := testkit.Run(t, nil, "token", "issue", "--name", "other", "--db", db); code != 0 {
				t.Errorf("another process can't use the database: %s", errs)
			}
			s.Kill()
			testkit.StartFixed(t, db)
			r.check(t, db)
		})
	}
}

// fillUp fills the volume until no block is free.
func fillUp(t *testing.T, v *testkit.Volume) {
	t.Helper()
	v.Fill(1 << 20)
	filler, err := os.OpenFile(v.Path("filler"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for range 3 { // A sync returns blocks that the file system has reserved.
		for err == nil {
			_, err = filler.Write(make([]byte, 1024))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		err = filler.Sync()
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// On a file system that refuses writes for a while, creates are refused and reads work; then the service continues.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ what, calls, reason string }{
		{"writes are refused", "pwrite64:error=EROFS", "can't be written"},
		{"every change is refused", "pwrite64,?rmdir,unlinkat:error=EROFS", "read-only file system"},
	} {
		t.Run(test.what, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "plants.db")
			s := testkit.StartFixed(t, db)
			r := newRecord(10)
			r.want(t, s, 1, 200)
			fault := inject(t, s, test.calls)
			for id := range int64(5) {
				r.want(t, s, 10+id, 50303)
				time.Sleep(30 * time.Millisecond) // so that the service checks the file in between
			}
			waitNotReady(t, s, test.reason)
			wantRead(t, s, 1)
			fault.stop()
			r.waitAcknowledged(t, s, 20)
			s.WaitReady(t, true)
			s.Kill()
			testkit.StartFixed(t, db)
			r.check(t, db)
		})
	}
}

// After an I/O error, ext4 becomes read-only until it is unmounted and checked. An operator cannot remount it while
// the service has files open.
func TestReadOnlyByTheKernel(t *testing.T) {
	t.Parallel()
	v := testkit.NewVolume(t, 16<<20)
	db := v.Path("plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(10)
	r.want(t, s, 1, 200)
	if err := exec.Command("mount", "-o", "remount,ro", v.Folder).Run(); err == nil {
		t.Error("a remount was not refused")
	}
	v.Run("sync", "--file-system", v.Folder)
	if err := os.WriteFile("/sys/fs/ext4/"+v.Device()+"/trigger_fs_error", []byte("the test"), 0); err != nil {
		testkit.Unavailable(t, "trigger an error of the file system: %v", err)
	}
	wantRead(t, s, 1)
	for id := range int64(5) {
		r.want(t, s, 10+id, 50303)
		time.Sleep(30 * time.Millisecond) // so that the service checks the file in between
	}
	waitNotReady(t, s, "written")
	wantRead(t, s, 1)
	s.Kill()
	v.Unmount()
	exec.Command("e2fsck", "-p", v.Image).Run() // It exits with 1 after a repair.
	v.Mount()
	s = testkit.StartFixed(t, db)
	r.want(t, s, 20, 200)
	r.check(t, db)
}
