//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// volume is a small ext4 file system of its own, in a file.
type volume struct {
	t             *testing.T
	image, folder string
}

func newVolume(t *testing.T, size int64) *volume {
	t.Helper()
	return newVolumeIn(t, t.TempDir(), size)
}

// newVolumeIn has its image in a folder. What the disk holds is taken from there when it is first written.
func newVolumeIn(t *testing.T, folder string, size int64) *volume {
	t.Helper()
	v := &volume{t, filepath.Join(folder, "image"), t.TempDir()}
	if err := os.WriteFile(v.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(v.image, size); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		lacking(t, "only root can mount a file system")
	}
	t.Cleanup(func() {
		exec.Command("fsfreeze", "--unfreeze", v.folder).Run()
		exec.Command("umount", "--lazy", v.folder).Run()
	})
	v.run("mkfs.ext4", "-q", "-F", "-m", "0", v.image)
	v.mount()
	return v
}

// run runs a command as root.
func (v *volume) run(name string, args ...string) string {
	v.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		lacking(v.t, "%s", name+" "+strings.Join(args, " ")+": "+err.Error()+" "+string(out))
	}
	return strings.TrimSpace(string(out))
}

func (v *volume) mount() {
	v.t.Helper()
	v.run("mount", "-o", "loop,errors=remount-ro", v.image, v.folder)
}

func (v *volume) unmount() { v.t.Helper(); v.run("umount", v.folder) }

func (v *volume) path(name string) string { return filepath.Join(v.folder, name) }

// device is the block device under it, such as loop0.
func (v *volume) device() string {
	v.t.Helper()
	return filepath.Base(v.run("findmnt", "--noheadings", "--output", "SOURCE", v.folder))
}

// cut does to the file system what a power cut does: what was not synced is lost.
func (v *volume) cut() {
	v.t.Helper()
	folder, err := os.Open(v.folder)
	if err != nil {
		v.t.Fatal(err)
	}
	defer folder.Close()
	const shutdown = 0x8004587D
	withoutLog := uint32(2)
	if _, _, err := syscall.Syscall(syscall.SYS_IOCTL, folder.Fd(), shutdown, uintptr(unsafe.Pointer(&withoutLog))); err != 0 {
		v.t.Fatalf("shut the file system down: %v", err)
	}
}

// fill leaves about that many bytes free.
func (v *volume) fill(free int64) {
	v.t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(v.folder, &fs); err != nil {
		v.t.Fatal(err)
	}
	v.run("fallocate", "--length", fmt.Sprint(int64(fs.Bavail)*fs.Bsize-free), v.path("filler"))
}
