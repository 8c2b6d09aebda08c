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

// Volume is a small ext4 file system in a file, mounted through a loop device. It needs root.
type Volume struct {
	Image, Folder string

	t *testing.T
}

// NewVolume mounts a new file system. It is unmounted at the end of the test, even if the test process is killed.
func NewVolume(t *testing.T, size int64) *Volume {
	t.Helper()
	return NewVolumeIn(t, t.TempDir(), size)
}

// NewVolumeIn is NewVolume with the image in a folder. The image takes up blocks there when they are first written.
func NewVolumeIn(t *testing.T, folder string, size int64) *Volume {
	t.Helper()
	v := &Volume{filepath.Join(folder, "image"), t.TempDir(), t}
	if err := os.WriteFile(v.Image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(v.Image, size); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		Unavailable(t, "only root can mount a file system")
	}
	v.unmountAtExit()
	if out, err := command("mkfs.ext4", "-q", "-F", "-m", "0", v.Image); err != nil {
		Unavailable(t, "mkfs.ext4: %v %s", err, out)
	}
	if out, err := v.mount(); err != nil {
		Unavailable(t, "mount: %v %s", err, out)
	}
	return v
}

// unmountAtExit starts a process that unmounts the folder when the test process ends in whatever way, and unmounts
// it at the end of the test.
func (v *Volume) unmountAtExit() {
	guard := exec.Command("sh", "-c", unmountScript, "sh", v.Folder)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := guard.StdinPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := guard.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() {
		command("fsfreeze", "--unfreeze", v.Folder)
		command("umount", "--lazy", v.Folder)
		pipe.Close()
		guard.Wait()
	})
}

// unmountScript waits for the end of its input. If the folder is still mounted, it kills the processes that have
// files open in it and unmounts it.
const unmountScript = `
read -r _
grep -q " $1 " /proc/mounts || exit 0
fsfreeze --unfreeze "$1" 2>/dev/null
for process in /proc/[0-9]*; do
	ls -l "$process/fd" 2>/dev/null | grep -q " $1/" && kill -9 "${process#/proc/}"
done
umount -l "$1"`

// command runs a program, which may be in a folder that only root has in its path.
func command(name string, args ...string) (output string, err error) {
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		name = path
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Run runs a program that must succeed and returns its output.
func (v *Volume) Run(name string, args ...string) string {
	v.t.Helper()
	out, err := command(name, args...)
	if err != nil {
		v.t.Fatalf("%s %s: %v %s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (v *Volume) mount() (output string, err error) {
	return command("mount", "-o", "loop,errors=remount-ro", v.Image, v.Folder)
}

// Mount mounts the file system again.
func (v *Volume) Mount() {
	v.t.Helper()
	if out, err := v.mount(); err != nil {
		v.t.Fatalf("mount: %v %s", err, out)
	}
}

// Unmount unmounts the file system.
func (v *Volume) Unmount() { v.t.Helper(); v.Run("umount", v.Folder) }

// Path is the path of a file on the volume.
func (v *Volume) Path(name string) string { return filepath.Join(v.Folder, name) }

// Device is the name of the block device, such as loop0.
func (v *Volume) Device() string {
	v.t.Helper()
	return filepath.Base(v.Run("findmnt", "--noheadings", "--output", "SOURCE", v.Folder))
}

// CutPower ends the file system as a power cut does: nothing that was not synced reaches the disk, not even the
// journal. Unmount and Mount it to see what is left.
func (v *Volume) CutPower() {
	v.t.Helper()
	folder, err := os.Open(v.Folder)
	if err != nil {
		v.t.Fatal(err)
	}
	defer folder.Close()
	const shutdown = 0x8004587D // EXT4_IOC_SHUTDOWN
	noLogFlush := uint32(2)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, folder.Fd(), shutdown, uintptr(unsafe.Pointer(&noLogFlush)))
	if errno != 0 {
		v.t.Fatalf("shut the file system down: %v", errno)
	}
}

// Fill writes a file "filler" that leaves about this many bytes free.
func (v *Volume) Fill(free int64) {
	v.t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(v.Folder, &fs); err != nil {
		v.t.Fatal(err)
	}
	v.Run("fallocate", "--length", fmt.Sprint(int64(fs.Bavail)*fs.Bsize-free), v.Path("filler"))
}

// Freeze blocks all writes until thaw is called, and at most for some seconds, whatever happens to the test. thawed
// is closed when writes are possible again.
func (v *Volume) Freeze(seconds string) (thawed chan struct{}, thaw func()) {
	v.t.Helper()
	v.Run("fsfreeze", "--freeze", v.Folder)
	guard := exec.Command("sh", "-c", "sleep "+seconds+"; fsfreeze --unfreeze "+v.Folder)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // An interrupt of the test does not reach it.
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
			command("fsfreeze", "--unfreeze", v.Folder) // It fails if the guard was faster.
			syscall.Kill(-guard.Process.Pid, syscall.SIGKILL)
			<-thawed
		}
	}
	v.t.Cleanup(thaw)
	return thawed, thaw
}

// Throttle limits how many times a second a process writes to the volume's device.
func (v *Volume) Throttle(s *Server, writes int) {
	v.t.Helper()
	number, err := os.ReadFile("/sys/block/" + v.Device() + "/dev")
	if err != nil {
		v.t.Fatal(err)
	}
	group, err := os.MkdirTemp("/sys/fs/cgroup/blkio", "plantstore-test-")
	if err != nil {
		Unavailable(v.t, "no cgroup of version 1 for block devices: %v", err)
	}
	v.t.Cleanup(func() {
		s.Kill()
		os.Remove(group)
	})
	for file, text := range map[string]string{
		"blkio.throttle.write_iops_device": fmt.Sprintf("%s %d", strings.TrimSpace(string(number)), writes),
		"cgroup.procs":                     fmt.Sprint(s.Cmd.Process.Pid),
	} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0); err != nil {
			Unavailable(v.t, "throttle the device: %v", err)
		}
	}
}
