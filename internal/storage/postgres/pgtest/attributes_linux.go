package pgtest

import "syscall"

func attributes(owner *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGQUIT}
}

// memoryFolder returns a folder in memory with room for the shared servers, or "".
func memoryFolder() string {
	const folder, tmpfs, room = "/dev/shm", 0x01021994, 2 << 30
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil || s.Type != tmpfs || s.Bavail*uint64(s.Bsize) <= room {
		return ""
	}
	return folder
}
