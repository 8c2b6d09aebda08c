//go:build linux

package durability

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"plantstore/test/testkit"
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
	for id = 1; id < 1000 && r.create(s, id) == 200; id++ {
	}
	if r.Responses()[50304] != 1 {
		t.Fatalf("responses %v, want 200 and then one 50304", r.Responses())
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
		if r.create(s, id) != 200 {
			t.Fatalf("responses %v after space was freed", r.Responses())
		}
	}
	if size := fileSize(t, db); size < 20<<20 {
		t.Errorf("the file has %d bytes: no checkpoint ran after space was freed", size)
	}
	s.Kill()
	r.check(t, testkit.StartFixed(t, db), db)
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// After an I/O error, ext4 becomes read-only until it is unmounted and checked. An operator cannot remount it while
// the service has files open.
func TestReadOnlyByTheKernel(t *testing.T) {
	testkit.Long(t)
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
	r.check(t, s, db)
}
