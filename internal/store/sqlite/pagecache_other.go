//go:build !linux

package sqlite

// dropPageCache does nothing: only Linux is known to mark pages clean after a failed fsync.
func dropPageCache(string) {}
