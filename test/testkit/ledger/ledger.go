// Package ledger is the clients of tests that make the service fail, and the record of what it promised them.
//
// The clients create, repeat, read, replace and remove plants through net/http, some of them with requests that must be
// refused. The ledger records each request before it is sent and what its response promises. Verify compares the record
// with what the service has stored, repeats each request whose outcome is unknown, and compares again.
//
// The record is in the memory of the test process. No test ends that process: kill -9 ends another one, and a power cut
// ends the file system of a loop device. The clients share no code with the service, so that both cannot have the same
// defect.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// Numbers of responses that are neither a status of success nor an error number.
const (
	None        = 0 // there was no response
	Unreachable = 1 // there was no connection, so nothing was sent
)

// Ledger is the record of one store.
type Ledger struct {
	Balanced bool // behind a balancer, which returns 50302 also for a read if a process ends; set before Start

	mu        sync.Mutex
	attempts  []*attempt // in the order in which they were sent
	checked   int        // how many of them an earlier Verify has counted
	sent      int64      // requests of clients
	responses map[int]int
	times     Times
	conns     atomic.Int64
}

// New is an empty ledger, for a store without plants.
func New() *Ledger { return &Ledger{responses: map[int]int{}} }

// Create sends a plant and returns the number of the response: 200, an error number, None or Unreachable.
func (l *Ledger) Create(to testkit.Target, id int64, name string) int {
	return l.send(single, to, &attempt{kind: fresh, id: id, body: encode(id, name, nil)}, time.Now())
}

// Replace is Create for a plant that is stored.
func (l *Ledger) Replace(to testkit.Target, id int64, name string) int {
	return l.send(single, to, &attempt{kind: edit, id: id, body: encode(id, name, nil)}, time.Now())
}

// Remove removes a plant that is stored.
func (l *Ledger) Remove(to testkit.Target, id int64) int {
	return l.send(single, to, &attempt{kind: drop, id: id}, time.Now())
}

// Responses counts the responses so far by their number.
func (l *Ledger) Responses() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.responses)
}

// Times is how long the responses so far took.
func (l *Ledger) Times() Times {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.times)
}

// Connections is how many connections the clients have opened.
func (l *Ledger) Connections() int { return int(l.conns.Load()) }

// Wait waits until clients have received so many more acknowledgements.
func (l *Ledger) Wait(t testing.TB, more int) {
	t.Helper()
	acked := func() int {
		all := l.Responses()
		return all[200] + all[204]
	}
	before := acked()
	testkit.WaitFor(t, fmt.Sprintf("%d more acknowledgements", more), func() bool { return acked() >= before+more })
}

// Failed is the number of requests so far that the service did not serve.
func (l *Ledger) Failed() (n int) {
	for number, times := range l.Responses() {
		if number == None || number == Unreachable || number/100 == 503 || number/100 == 429 {
			n += times
		}
	}
	return n
}

// record adds an attempt before it is sent.
func (l *Ledger) record(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, a)
}

// complete adds the response to an attempt.
func (l *Ledger) complete(a *attempt, number int, received string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.number, a.received = number, received
	l.responses[number]++
	l.times = append(l.times, took)
}

// Times is how long responses took, in any order.
type Times []time.Duration

// Quantile returns the time that the share q of all responses does not exceed.
func (t Times) Quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(int(q*float64(len(t))), len(t)-1)]
}
