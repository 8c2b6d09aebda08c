//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A disk without blocks left fails a sync in earnest: the kernel goes on showing what was written, calls it clean, and
// the disk does not have it. What is acknowledged after a restart must not be lost with the kernel's memory.
func TestSyncFailsAndTheServiceIsStartedAgain(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "plantstore-test", folder).CombinedOutput(); err != nil {
		lacking(t, "no file system in memory can be mounted: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", "--lazy", folder).Run() })
	v := newVolumeIn(t, folder, 24<<20)
	v.unmount()
	v.run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", v.image)
	v.run("cp", "--sparse=never", v.image, v.image+" with all its blocks")
	v.run("mv", v.image+" with all its blocks", v.image)
	v.mount()
	// The loop device calls a write of which it could do a part a success, so each is to be of one block.
	if err := os.WriteFile("/sys/block/"+v.device()+"/queue/max_sectors_kb", []byte("4"), 0); err != nil {
		lacking(t, "the device can't be told to write single blocks: %v", err)
	}
	db := v.path("plants.db")
	p := serveWith(t, db)
	l := newTold(30_000)
	for id := range int64(3) {
		if number := l.send(t, p, id); number != 200 {
			t.Fatalf("plant %d: answered %d", id, number)
		}
	}
	v.run("sync", "--file-system", v.folder)
	v.run("fstrim", v.folder) // gives back the blocks that no file has

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
	p.says(t, "start", 5*time.Second)
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}

	p.stop(20 * time.Second)
	p = serveWith(t, db)
	for id := last; id < last+5; id++ { // the first of them once more
		if number := l.send(t, p, id); number != 200 {
			t.Errorf("plant %d: answered %d after the restart", id, number)
		}
	}
	p.kill()
	v.unmount()
	v.mount()
	l.check(t, db)
}
