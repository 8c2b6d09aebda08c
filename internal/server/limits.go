package server

import (
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
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
func maxConns(processors int, files uint64, memory int64) int {
	n := int64(min(manyConns, connsOfOne*processors))
	if files < manyConns*2 {
		n = min(n, (int64(files)-otherFiles)*8/9) // a ninth for those that are being refused: see leavingConns
	}
	return int(max(fewConns, min(n, memory/memoryOfOne)))
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

// memoryLimit is the limit of the control group that the process is in, of either version of control
// groups, or the largest number.
func memoryLimit(root string) int64 {
	limit := int64(math.MaxInt64)
	text, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		folder, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		// Every group above counts too. In a container the path may be that of the host, and only
		// the last of them, the root, be there.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			value, _ := os.ReadFile(path.Join(root, folder, group, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(value)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}

// limitMemory makes the collector work harder before the group's limit ends the process. SQLite's memory
// is not the collector's: the rest is for that.
func limitMemory(memory int64) {
	if memory < math.MaxInt64/2 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory / 2)
	}
}
