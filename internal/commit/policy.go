package commit

import "time"

// policy decides when a batch starts. It is pure: the Committer owns the state, the timers and the queue.
//
// A batch starts as soon as a lane is free and takes the plants that are waiting, as many as a batch may have. The
// three exceptions below make batches larger where that pays, and none of them delays a single client.
type policy Options

// state is what the policy knows of a server.
type state struct {
	shards   int  // that writes were for
	waiting  int  // plants in the queue
	active   int  // lanes that are committing
	inFlight int  // plants that those lanes are committing
	expected int  // plants to wait for before the next batch, while no lane is committing
	closed   bool // no more plants will join
}

const (
	// expectedFor is how long a lane waits, at most, for the plants that it expects.
	expectedFor = 500 * time.Microsecond

	// overdueAfter is how long a few plants wait, at most, for a lane that is committing: a lock in the
	// database may block that lane for seconds.
	overdueAfter = 50 * time.Millisecond
)

// starts reports whether a free lane should start a batch of a number of plants now. It is overdue if it has waited
// overdueAfter.
//
// A further lane starts only when its batch is at least as large as the average batch in flight, and large. A smaller
// one is cheaper as part of the next batch of a lane that is committing. With several shards, a batch is large if it
// has its shard's share of all plants.
func (p policy) starts(s state, plants int, overdue bool) bool {
	switch {
	case plants == 0:
		return false
	case s.closed:
		return true
	case s.active == 0:
		return plants >= s.expected
	}
	large := min(p.Large, (s.waiting+s.inFlight)/max(1, s.shards))
	return plants >= max(large, s.inFlight/s.active) || overdue
}

// expect returns how many plants to wait for after a batch of n has started.
//
// The clients of a large batch send their next plants as soon as they have their responses, and a commit of the
// first few costs as much as one of all. So a single lane waits for three quarters of them. Behind a full batch others
// are waiting already.
func (p policy) expect(n int) int {
	if p.Lanes > 1 || n < p.Large || n >= p.Batch {
		return 0
	}
	return n * 3 / 4
}

// yields reports whether a lane lets other goroutines run before it takes a batch, where last is the size of the
// previous one. Some goroutines are about to join, which makes the batch larger. After a batch of one there is
// probably a single client, and yielding would only move its commit to another processor.
func (p policy) yields(last int) bool { return last != 1 }
