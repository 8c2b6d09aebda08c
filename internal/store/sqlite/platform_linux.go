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

// syncData is f.Sync without the times of the file, for which the file system would write its journal.
func syncData(f *os.File) (err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Fdatasync(int(f.Fd()))
	}
	return err
}

// InMemory reports whether a file is on a file system that a restart of the machine empties.
func InMemory(path string) bool {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	return err == nil && (int64(fs.Type) == unix.TMPFS_MAGIC || int64(fs.Type) == unix.RAMFS_MAGIC)
}

// freeBytes returns how much this user can still write to the disk of a file, or -1 if that is unknown.
func freeBytes(path string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize)
}
