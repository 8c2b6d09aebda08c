//go:build linux

package durability

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// A disk without blocks left fails a sync in earnest: the kernel goes on showing what was written, calls it clean, and
// the disk does not have it. What is acknowledged after a restart must not be lost with the kernel's memory.
func TestSyncFailsAndTheServiceIsStartedAgain(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "plantstore-test", folder).CombinedOutput(); err != nil {
		testkit.Unavailable(t, "no file system in memory can be mounted: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", "--lazy", folder).Run() })
	v := testkit.NewVolumeIn(t, folder, 24<<20)
	v.Unmount()
	v.Run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", v.Image)
	v.Run("cp", "--sparse=never", v.Image, v.Image+" with all its blocks")
	v.Run("mv", v.Image+" with all its blocks", v.Image)
	v.Mount()
	// The loop device calls a write of which it could do a part a success, so each is to be of one block.
	if err := os.WriteFile("/sys/block/"+v.Device()+"/queue/max_sectors_kb", []byte("4"), 0); err != nil {
		testkit.Unavailable(t, "the device can't be told to write single blocks: %v", err)
	}
	db := v.Path("plants.db")
	p := testkit.StartFixed(t, db)
	l := newTold(30_000)
	for id := range int64(3) {
		if number := l.send(t, p, id); number != 200 {
			t.Fatalf("plant %d: answered %d", id, number)
		}
	}
	v.Run("sync", "--file-system", v.Folder)
	v.Run("fstrim", v.Folder) // gives back the blocks that no file has

	filler, err := os.Create(filepath.Join(folder, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 4096); err == nil; {
		_, err = filler.Write(buffer)
	}
	filler.Close()
	last := int64(3)
	for ; l.send(t, p, last) == 200; last++ { // blocks that the file system has given before
		if last == 200 {
			t.Fatal("nothing fails on a disk without blocks")
		}
	}
	if l.answers[50302] != 1 {
		t.Fatalf("answers %v, want one of unknown outcome", l.answers)
	}
	waitNotReady(t, p, "start", 5*time.Second)
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}

	p.Stop(20 * time.Second)
	p = testkit.StartFixed(t, db)
	for id := last; id < last+5; id++ { // the first of them once more
		if number := l.send(t, p, id); number != 200 {
			t.Errorf("plant %d: answered %d after the restart", id, number)
		}
	}
	p.Kill()
	v.Unmount()
	v.Mount()
	l.check(t, db)
}
