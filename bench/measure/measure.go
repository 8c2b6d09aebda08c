// Package measure contains what the load process and the programs that start it share: the report,
// ids, histograms, and the resources that a process has used.
package measure

import (
	"strings"
	"time"
)

// Report is what the load process prints at the end.
type Report struct {
	// Of the whole run, including the time before the window.
	First   int64  // first sequence number; creates or edits alone use First to First+Sent-1
	Sent    int64  // requests
	OK      int64  // of these, those with the expected response: status 200, or 204 for a remove
	Created int64  // of these, creates
	Bad     int64  // failures of any kind below
	Reason  string // of the first failure

	// From the start of the window to the end of the run.
	Unconnected int // connections that were not established in a second
	Broken      int // requests without a response
	Wrong       int // responses that are not as in OK
	Late        int // requests without a response at the end

	// Of the window.
	Seconds             float64
	Count               int64 // responses as in OK, without those of Beside
	Beside              int64 // creates of clients that only create
	Body                int64 // bytes of the bodies of the counted responses
	P50, P99, P999, Max time.Duration
	LoadCPU             time.Duration // of the load process itself, for each request
	Others              float64       // cores used by all other processes of the machine
	Stolen              float64       // cores that other virtual machines used
	Server              []Used        // by each process asked for
}

// Used is what a process and its children have used.
type Used struct {
	CPU   time.Duration // user and system
	Bytes int64         // written
	RSS   int64         // bytes now
	Peak  int64         // bytes at most since the start of the process
}

// Ids have 16 digits, so that every request has the same length, and stay below 2^53, because
// PocketBase keeps numbers as floating point.
const (
	scatteredFrom = 1_000_000_000_000_000
	ascendingFrom = 6_000_000_000_000_000
	idBits        = 51
	idMask        = 1<<idBits - 1
)

// ID returns the id of a sequence number. Numbers below 2^51 have different ids.
// Scattered ids are odd and lie below every ascending one.
func ID(sequence int64, scattered bool) int64 {
	if !scattered {
		return ascendingFrom + sequence
	}
	x := uint64(sequence) & idMask
	for range 2 { // each step is reversible, so the ids are distinct
		x = x * 0x9E3779B97F4A7C15 & idMask
		x ^= x >> 26
	}
	return scatteredFrom + int64(x)*2 + 1
}

// Name returns the name of every plant of a run, of the given length.
func Name(bytes int) string { return strings.Repeat("Monstera d", bytes/10+1)[:bytes] }

// Renamed returns a name of the same length that differs from every name that Name returns.
func Renamed(name string) string { return "P" + name[1:] }

// Tag is the tag of every plant.
const Tag = "climber"

// SpreadID returns the id of plant i of n, spread evenly over the range of scattered ids. It is even, and the number
// below it has as many digits.
func SpreadID(i, n int64) int64 { return scatteredFrom + 2 + (1<<idBits/n)*i*2 }
