//go:build !linux

package sqlite

// forget is for Linux: elsewhere a sync that failed leaves what was not written to be written again, or nobody
// has shown us otherwise.
func forget(string) {}
