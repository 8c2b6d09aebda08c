package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// inUse reports whether another process has a database open, and thus a lock on the file. Call it before this process
// opens the database, because it closes a descriptor of the file, which releases all locks of this process.
func inUse(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}

// checkAccess returns an error unless this user can read and write a file.
func checkAccess(path string) error { return unix.Access(path, unix.R_OK|unix.W_OK) }

func statDisk(path string) disk {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return disk{free: -1}
	}
	d := disk{free: int64(fs.Bavail) * int64(fs.Bsize)}
	switch int64(uint32(fs.Type)) {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		d.level, d.danger = "problem", inMemory
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.V9FS_MAGIC, unix.CODA_SUPER_MAGIC:
		d.level, d.danger = "problem", "is on a network: plants can be lost; "+moveAway
	case unix.OVERLAYFS_SUPER_MAGIC:
		d.level, d.danger = "warning", "is a layer of a container and removed with it; use a volume"
	case unix.FUSE_SUPER_MAGIC:
		d.level, d.danger = "warning", "is on FUSE; check that it is a local disk and honours fsync"
	}
	return d
}
