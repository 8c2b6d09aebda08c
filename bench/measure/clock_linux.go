package measure

import (
	"syscall"
	"time"
	"unsafe"
)

// processTime returns the user and system time of a process, without its children. It is exact where /proc counts in
// ticks, which matters for windows of a tenth of a second.
func processTime(pid int) (time.Duration, bool) {
	clock := ^pid<<3 | 2 // as clock_getcpuclockid(3) computes it
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano()), errno == 0
}
