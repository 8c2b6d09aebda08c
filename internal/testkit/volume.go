//go:build linux

package testkit

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

// Freeze keeps everybody from writing until thaw is called, and for so many seconds at most, whatever becomes of
// the test.
func (v *Volume) Freeze(seconds string) (thawed chan struct{}, thaw func()) {
	v.t.Helper()
	v.Run("fsfreeze", "--freeze", v.Folder)
	guard := exec.Command("sh", "-c", "sleep "+seconds+"; fsfreeze --unfreeze "+v.Folder)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the test is not for it
	if err := guard.Start(); err != nil {
		v.Run("fsfreeze", "--unfreeze", v.Folder)
		v.t.Fatal(err)
	}
	thawed = make(chan struct{})
	go func() { guard.Wait(); close(thawed) }()
	thaw = func() {
		select {
		case <-thawed:
		default:
			exec.Command("fsfreeze", "--unfreeze", v.Folder).Run() // or the guard has been faster
			syscall.Kill(-guard.Process.Pid, syscall.SIGKILL)
			<-thawed
		}
	}
	v.t.Cleanup(thaw)
	return thawed, thaw
}

// Throttle lets a process write to the volume's device that many times a second.
func (v *Volume) Throttle(p *Server, writes int) {
	v.t.Helper()
	number, err := os.ReadFile("/sys/block/" + v.Device() + "/dev")
	if err != nil {
		v.t.Fatal(err)
	}
	group, err := os.MkdirTemp("/sys/fs/cgroup/blkio", "plantstore-test-")
	if err != nil {
		Unavailable(v.t, "%s", "no cgroup of version 1 for block devices: "+err.Error())
	}
	v.t.Cleanup(func() {
		p.Kill()
		os.Remove(group)
	})
	for file, text := range map[string]string{
		"blkio.throttle.write_iops_device": fmt.Sprintf("%s %d", strings.TrimSpace(string(number)), writes),
		"cgroup.procs":                     fmt.Sprint(p.Cmd.Process.Pid),
	} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			Unavailable(v.t, "%s", err.Error())
		}
	}
}

// Volume is a small ext4 file system of its own, in a file.
type Volume struct {
	t             *testing.T
	Image, Folder string
}

func NewVolume(t *testing.T, size int64) *Volume {
	t.Helper()
	return NewVolumeIn(t, t.TempDir(), size)
}

// NewVolumeIn has its image in a folder. What the disk holds is taken from there when it is first written.
func NewVolumeIn(t *testing.T, folder string, size int64) *Volume {
	t.Helper()
	v := &Volume{t, filepath.Join(folder, "image"), t.TempDir()}
	if err := os.WriteFile(v.Image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(v.Image, size); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		Unavailable(t, "only root can mount a file system")
	}
	t.Cleanup(func() {
		exec.Command("fsfreeze", "--unfreeze", v.Folder).Run()
		exec.Command("umount", "--lazy", v.Folder).Run()
	})
	v.Run("mkfs.ext4", "-q", "-F", "-m", "0", v.Image)
	v.Mount()
	return v
}

// Run runs a command as root.
func (v *Volume) Run(name string, args ...string) string {
	v.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		Unavailable(v.t, "%s", name+" "+strings.Join(args, " ")+": "+err.Error()+" "+string(out))
	}
	return strings.TrimSpace(string(out))
}

func (v *Volume) Mount() {
	v.t.Helper()
	v.Run("mount", "-o", "loop,errors=remount-ro", v.Image, v.Folder)
}

func (v *Volume) Unmount() { v.t.Helper(); v.Run("umount", v.Folder) }

func (v *Volume) Path(name string) string { return filepath.Join(v.Folder, name) }

// Device is the block device under it, such as loop0.
func (v *Volume) Device() string {
	v.t.Helper()
	return filepath.Base(v.Run("findmnt", "--noheadings", "--output", "SOURCE", v.Folder))
}

// Cut does to the file system what a power cut does: what was not synced is lost.
func (v *Volume) Cut() {
	v.t.Helper()
	folder, err := os.Open(v.Folder)
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

// Fill leaves about that many bytes free.
func (v *Volume) Fill(free int64) {
	v.t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(v.Folder, &fs); err != nil {
		v.t.Fatal(err)
	}
	v.Run("fallocate", "--length", fmt.Sprint(int64(fs.Bavail)*fs.Bsize-free), v.Path("filler"))
}
