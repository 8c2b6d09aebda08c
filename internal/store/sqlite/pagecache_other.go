//go:build !linux

package sqlite

import "os"

// dropPageCaches does nothing: only Linux is known to mark pages clean after a failed fsync.
func dropPageCaches(string) {}

// inUse reports whether another process may have a database open. It is implemented on Linux only.
func inUse(string) bool { return true }

// DropPageCache makes the kernel read a file from the disk again. It is implemented on Linux only.
func DropPageCache(string) {}

// readAhead does nothing: it is implemented on Linux only.
func readAhead(*os.File, int64, <-chan struct{}) int64 { return 0 }

func memorySize(int64) int64 { return 0 }

func syncData(f *os.File) error { return f.Sync() }
