package server

import (
	"os"
	"runtime/debug"
)

const (
	maxBodyMemory = 64 << 20 // bytes of large bodies and pages at once where memory is unlimited

	// The live heap is a few MiB, so that rarer collections cost little memory and save a create a tenth of its time.
	gcPercent = 400

	// What else the heap holds when it is largest.
	heapPerConn = 32 << 10
	otherHeap   = 32 << 20
)

// maxBodies is how many bytes of large bodies and pages may be in memory at once. Decoding and garbage need as much
// again, twice.
func maxBodies(memory, maxBody int64) int64 {
	return max(4*maxBody, min(maxBodyMemory, memory/8))
}

// tuneCollector sets the pace of the garbage collector unless the environment does. It works harder from a limit on: in
// a large heap, such as one with pages that clients do not read, four times as much garbage would be too much. Where
// memory is limited, half of it is left for SQLite, which is not the collector's.
func tuneCollector(memory, bodies int64, conns int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(min(memory/2, otherHeap+heapPerConn*int64(conns)+2*bodies))
	}
}
