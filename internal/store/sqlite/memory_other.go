//go:build !linux

package sqlite

// InMemory reports whether a file is on a file system that a restart of the machine empties.
// It is implemented on Linux only.
func InMemory(string) bool { return false }

// freeBytes is implemented on Linux only.
func freeBytes(string) int64 { return -1 }
