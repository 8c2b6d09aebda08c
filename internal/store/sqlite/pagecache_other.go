//go:build !linux

package sqlite

// dropPageCaches does nothing: only Linux is known to mark pages clean after a failed fsync.
func dropPageCaches(string) {}
