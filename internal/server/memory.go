package server

import (
	"os"
	"runtime/debug"
)

const (
	maxBodyMemory = 64 << 20 // bytes of large bodies and pages at once where memory is unlimited

	// The live heap is a few MiB, so that rarer collections cost little memory and save a create a tenth of its time.
	gcPercent = 400
)

// maxBodies is how many bytes of large bodies and pages may be in memory at once. Decoding and garbage need as much
// again, twice.
func maxBodies(memory, maxBody int64) int64 {
	return max(4*maxBody, min(maxBodyMemory, memory/8))
}

// tuneCollector sets the pace of the garbage collector unless the environment does. Where memory is limited it works
// harder before the limit ends the process; half of the memory is left for SQLite, which is not the collector's.
func tuneCollector(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory / 2)
	}
}
