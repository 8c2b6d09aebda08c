package server

import (
	"math"
	"os"
	"runtime/debug"

	"plantstore/internal/machine"
)

const (
	connsOfOne  = 512       // connections for each processor: at work all at once, each waits some 20 ms for its turn
	manyConns   = 4096      // connections at most
	memoryOfOne = 128 << 10 // bytes to leave for a connection, its request and what the collector lags behind
	otherFiles  = 36        // files that the database, the log, health and refusals may need at once
	opsConns    = 8         // connections for health, which leave files for the rest
	fewConns    = 4         // connections at least, whatever the limits are

	memoryOfBodies = 64 << 20 // bytes of large bodies and pages at once, where memory has no limit
)

// maxConns is how many connections processors, files and memory allow.
func maxConns(m machine.Limits) int {
	n := int64(min(manyConns, connsOfOne*m.Processors))
	if m.Files < manyConns*2 {
		n = min(n, (int64(m.Files)-otherFiles)*8/9) // a ninth for those that are being refused: see leavingConns
	}
	return int(max(fewConns, min(n, m.Memory/memoryOfOne)))
}

// leavingConns is how many connections may be open beside those, to be told that there is no room.
func leavingConns(conns int, files uint64) int {
	left := int64(min(files, 4*manyConns)) - int64(otherFiles+conns)
	return int(max(fewConns, min(left, refuseAtOnce)))
}

// maxHeld is how many bytes of large bodies and pages may be in memory at once. Decoding and garbage
// need as much again, twice.
func maxHeld(memory, maxBody int64) int64 {
	return max(4*maxBody, min(memoryOfBodies, memory/8))
}

// limitMemory makes the collector work harder before the group's limit ends the process. SQLite's memory
// is not the collector's: the rest is for that.
func limitMemory(memory int64) {
	if memory < math.MaxInt64/2 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory / 2)
	}
}
