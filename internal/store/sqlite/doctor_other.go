//go:build !linux

package sqlite

import "plantstore/internal/store"

// isFull is implemented on Linux only.
func isFull(string) bool { return false }

// diagnoseDisk checks the file system of a folder. It is implemented on Linux only.
func diagnoseDisk(*store.Findings, string) {}

// diagnoseAccess is implemented on Linux only.
func diagnoseAccess(*store.Findings, string) (readable bool) { return true }
