//go:build !linux

package sqlite

import (
	"os"

	"plantstore/internal/store"
)

// inUse is unknown, so each command settles the WAL.
func inUse(string) bool { return false }

func syncData(f *os.File) error { return f.Sync() }

// InMemory reports whether a file is on a file system that a restart of the machine empties. It is implemented on
// Linux only, like the functions below.
func InMemory(string) bool { return false }

func freeBytes(string) int64 { return -1 }

func diagnoseDisk(*store.Findings, string) {}

func diagnoseAccess(*store.Findings, string) (readable bool) { return true }
