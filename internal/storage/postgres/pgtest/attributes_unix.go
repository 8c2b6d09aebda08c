//go:build unix && !linux

package pgtest

import "syscall"

func attributes(owner *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner}
}

func memoryFolder() string { return "" }
