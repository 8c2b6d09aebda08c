//go:build !linux

package sqlite

import "errors"

// inUse is unknown, so each command settles the WAL.
func inUse(string) bool { return false }

func checkAccess(string) error { return nil }

func statDisk(string) (disk, error) { return disk{free: -1}, errors.ErrUnsupported }
