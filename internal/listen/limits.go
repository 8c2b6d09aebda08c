package listen

import "plantstore/internal/machine"

const (
	connsPerProcessor = 512       // more would only wait longer for a processor
	maxConns          = 4096      // however large the machine is
	minConns          = 4         // however small its limits are
	memoryPerConn     = 128 << 10 // bytes for a connection, its request and garbage
	maxHealthConns    = 64
	otherFiles        = 32 // that the database, the log and refusals may open
)

// HealthMax is how many connections to the ops port the limit on open files allows.
func HealthMax(files uint64) int { return int(max(minConns, min(maxHealthConns, files/32))) }

// DefaultMax is how many connections the machine allows.
func DefaultMax(m machine.Limits) int {
	files := int64(min(m.Files, 2*maxConns))
	byFiles := (files - otherFiles - int64(HealthMax(m.Files))) * 8 / 9 // the rest is for refusals: see spareFiles
	return int(max(minConns, min(maxConns, int64(connsPerProcessor*m.Processors), byFiles, m.Memory/memoryPerConn)))
}

// spareFiles is how many connections the limit on open files allows besides conns.
func spareFiles(conns int, files uint64) int {
	left := int64(min(files, 4*maxConns)) - int64(otherFiles+HealthMax(files)+conns)
	return int(max(minConns, min(left, maxConns)))
}
