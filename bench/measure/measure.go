// Package measure is what the harness and the load process share: ids, histograms, and what a
// process has used.
package measure

import (
	"strings"
	"time"
)

// Report is what the load process prints when it is done.
type Report struct {
	First  int64  `json:"first"`  // the first sequence number used
	Sent   int64  `json:"sent"`   // requests in all, warm-up included: First to First+Sent-1
	OK     int64  `json:"ok"`     // of these, answered 200
	Bad    int64  `json:"bad"`    // answered otherwise, or not at all
	Reason string `json:"reason"` // what the first bad one got

	Count   int64   `json:"count"`   // answers 200 inside the measured window
	Seconds float64 `json:"seconds"` // the window
	P50     float64 `json:"p50"`     // µs, as are the four below
	P99     float64 `json:"p99"`
	P999    float64 `json:"p999"`
	Max     float64 `json:"max"`
	LoadCPU float64 `json:"load_cpu"` // of the load process itself, for each create
	Others  float64 `json:"others"`   // cores that everything else on the machine used meanwhile

	Server []Used `json:"server"` // for each process asked about
}

// Used is what a process, its children included, used inside the window, and its memory at the end.
type Used struct {
	CPU   time.Duration `json:"cpu"`   // user and system
	Bytes int64         `json:"bytes"` // written
	RSS   int64         `json:"rss"`   // bytes at the end of the window
	Peak  int64         `json:"peak"`  // bytes at most since the start of the process
}

// Ids have 16 digits, so that every request has the same length, and stay below 2^53, because
// PocketBase keeps numbers as floating point.
const (
	scatteredFrom = 1_000_000_000_000_000
	ascendingFrom = 6_000_000_000_000_000
	idBits        = 51
	idMask        = 1<<idBits - 1
)

// ID is the id of a sequence number. No two numbers below 2^51 have the same one.
// Scattered ids are odd and lie below every ascending one.
func ID(sequence int64, scattered bool) int64 {
	if !scattered {
		return ascendingFrom + sequence
	}
	x := uint64(sequence) & idMask
	for range 2 { // each step can be undone, so the whole is one to one
		x = x * 0x9E3779B97F4A7C15 & idMask
		x ^= x >> 26
	}
	return scatteredFrom + int64(x)*2 + 1
}

// Name is the name, of so many bytes, of every plant of a run.
func Name(bytes int) string { return strings.Repeat("Monstera d", bytes/10+1)[:bytes] }

// Tag is the tag of every plant.
const Tag = "climber"

// SpreadID is the id of one of n plants that are even and lie evenly among the scattered ones.
func SpreadID(i, n int64) int64 { return scatteredFrom + (1<<idBits/n)*i*2 }
