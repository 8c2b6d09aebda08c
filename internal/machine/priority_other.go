//go:build !linux

package machine

// LowerPriority lets other processes use the processors first. It is implemented on Linux only.
func LowerPriority() {}
