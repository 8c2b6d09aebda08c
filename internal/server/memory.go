package server

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	maxBodyMemory = 64 << 20 // bytes of large bodies and pages at once where memory is unlimited

	// The live heap is small, so rarer collections cost little memory and save a create processor time.
	gcPercent = 400

	// The largest heap, besides large bodies and pages: for each connection, and for everything else.
	heapPerConn = 32 << 10
	otherHeap   = 32 << 20
)

// maxBodies is how many bytes of large bodies and pages may be in memory at once. Peak memory is about three times
// this: body, decoded copy, garbage.
func maxBodies(memory, maxBody int64) int64 {
	return max(4*maxBody, min(maxBodyMemory, memory/8))
}

// tuneCollector configures the garbage collector unless the environment does. The memory limit makes it run more often
// when the heap is large, such as with many pages that clients do not read: gcPercent alone would allow too much
// garbage. Where memory is limited, half of it is left for SQLite, whose memory the collector does not manage.
func tuneCollector(memory, bodies int64, conns int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(min(memory/2, otherHeap+heapPerConn*int64(conns)+2*bodies))
	}
}

// tuneScheduler raises GOMAXPROCS on SQLite, unless the environment or the CPU limit of a container sets it. A commit
// spends most of its time in system calls. During a short one its goroutine keeps its P, so that no other runs on it.
func tuneScheduler(engine string) {
	processors := runtime.NumCPU()
	if engine == "sqlite" && os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == processors {
		runtime.GOMAXPROCS(processors + 2)
	}
}
