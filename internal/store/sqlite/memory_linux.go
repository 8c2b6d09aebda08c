package sqlite

import "syscall"

// InMemory reports whether a file is on a file system that a restart of the machine empties.
func InMemory(path string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var fs syscall.Statfs_t
	err := syscall.Statfs(path, &fs)
	return err == nil && (int64(fs.Type) == tmpfs || int64(fs.Type) == ramfs)
}

// freeBytes returns how much this user can still write to the disk of a file, or -1 if that is unknown.
func freeBytes(path string) int64 {
	var fs syscall.Statfs_t
	if syscall.Statfs(path, &fs) != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize)
}
