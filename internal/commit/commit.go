// Package commit groups writes, either creates or edits, into batches, so that many of them share one commit.
//
// A lane is a goroutine that commits one batch after the other. As soon as its commit has ended it takes the
// plants that are waiting by then as its next batch; the policy in policy.go names the exceptions.
//
// A database that is distributed over servers commits a batch fastest if all its plants are in one shard. So plants
// of different shards are in different batches, and every server has its own lanes: one that does not respond does
// not delay the others.
package commit

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// Options bound a Committer. A zero field takes its default.
type Options struct {
	Lanes   int           // batches in flight on one server at most; 1
	Batch   int           // plants in a batch at most; 512
	Large   int           // plants from which a batch is large, see policy; 16
	Queue   int           // plants waiting for a lane at most; 4096
	Timeout time.Duration // how long Commit waits for an outcome at most; 10 s

	// Observe is called after every commit; it may be nil.
	Observe func(BatchResult)

	// ObserveWait is called with the context of a write after its batch has ended; it may be nil.
	ObserveWait func(context.Context, WriteTiming)
}

// WriteTiming is what is known of a write at its end, for traces.
type WriteTiming struct {
	Joined  time.Time // when the write was queued
	Started time.Time // when its commit started; zero if it did not
	Ended   time.Time
	Plants  int // in the batch
	Err     error
}

// BatchResult is what is known of a batch at the end of its commit, for metrics.
type BatchResult struct {
	Plants   int
	Outcomes []plant.Outcome // nil if Err is not nil; must not be kept or changed
	Err      error
	Took     time.Duration
}

// Committer groups writes of a type T into batches. It is safe for concurrent use.
type Committer[T any] struct {
	write  func(context.Context, []T) ([]plant.Outcome, error)
	shard  func(*T) (server, shard int)
	opts   Options
	policy policy

	mu      sync.Mutex
	waiting int          // plants in all queues
	servers []*server[T] // by their numbers
	running bool
	closed  bool

	lanes sync.WaitGroup
}

// batch is shared by its callers. Each knows its index in writes and finds its outcome at the same index.
type batch[T any] struct {
	shard   int
	writes  []T
	timeout *time.Timer // ends the wait of the callers
	wait    *time.Timer // sets overdue

	done       chan struct{} // closed when outcomes, err and end are set
	outcomes   []plant.Outcome
	err        error
	start, end time.Time // of the commit; start is zero until then

	started, finished, overdue bool // guarded by Committer.mu
}

// New returns a Committer that commits while Run runs.
//
// Write commits a batch, as CreateBatch and EditBatch of storage.Plants do. Shard returns the numbers of the server and
// of the shard that keep a plant, as Shard of storage.Plants does.
func New[T any](
	write func(context.Context, []T) ([]plant.Outcome, error), shard func(*T) (server, shard int), opts Options,
) *Committer[T] {
	opts.Lanes = cmp.Or(opts.Lanes, 1)
	opts.Batch = cmp.Or(opts.Batch, 512)
	opts.Large = min(cmp.Or(opts.Large, 16), opts.Batch)
	opts.Queue = cmp.Or(opts.Queue, 4096)
	opts.Timeout = cmp.Or(opts.Timeout, 10*time.Second)
	return &Committer[T]{write: write, shard: shard, opts: opts, policy: policy(opts)}
}

// Queue returns how many plants may wait at most.
func (c *Committer[T]) Queue() int { return c.opts.Queue }

// Waiting returns how many plants wait for a lane.
func (c *Committer[T]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// Commit makes a write and returns its outcome once that would survive power loss.
//
// It stores nothing if ctx has ended when it is called. Later the end of ctx changes nothing: the write is part
// of a batch with others, and Commit returns the outcome of that batch, also while the Committer stops.
//
// ErrBusy, ErrStopping and the error of ctx mean that nothing was stored, ErrUnknown that the outcome is unknown.
// Any other error comes from the storage.
func (c *Committer[T]) Commit(ctx context.Context, write T) (plant.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	joined := time.Now()
	b, i, err := c.join(write)
	if err != nil {
		return 0, err
	}
	<-b.done
	if c.opts.ObserveWait != nil {
		c.opts.ObserveWait(ctx, WriteTiming{joined, b.start, b.end, len(b.writes), b.err})
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.outcomes[i], nil
}

// join adds a write to the open batch of its shard, or to a new one, and returns that batch and the index of the write.
func (c *Committer[T]) join(write T) (*batch[T], int, error) {
	number, shard := c.shard(&write)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, 0, storage.ErrStopping
	}
	if c.waiting >= c.opts.Queue {
		return nil, 0, storage.ErrBusy
	}
	s := c.server(number)
	b := s.openBatch(shard)
	b.writes = append(b.writes, write)
	c.waiting++
	s.state.waiting++
	if s.starts(b) {
		s.wake.Signal()
	}
	return b, len(b.writes) - 1, nil
}

// server returns the server with a number. The caller holds mu.
func (c *Committer[T]) server(number int) *server[T] {
	for len(c.servers) <= number {
		s := &server[T]{Committer: c, open: map[int]*batch[T]{}, wake: sync.NewCond(&c.mu)}
		s.expected = time.AfterFunc(expectedFor, s.stopExpecting)
		c.servers = append(c.servers, s)
		if c.running {
			s.runLanes()
		}
	}
	return c.servers[number]
}

// Run commits until ctx ends. It then commits what is still waiting and returns.
func (c *Committer[T]) Run(ctx context.Context) {
	c.mu.Lock()
	c.running = true
	for _, s := range c.servers {
		s.runLanes()
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.closed = true
	for _, s := range c.servers {
		s.state.closed = true
		s.wake.Broadcast()
	}
	c.mu.Unlock()
	c.lanes.Wait()
}

func (c *Committer[T]) commit(writes []T) (outcomes []plant.Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic in a commit: %v\n%s", storage.ErrUnknown, r, debug.Stack())
		}
	}()
	outcomes, err = c.write(context.Background(), writes)
	if err == nil && len(outcomes) != len(writes) {
		err = fmt.Errorf("%w: the storage returned %d outcomes for %d plants", storage.ErrUnknown, len(outcomes), len(writes))
	}
	return outcomes, err
}

// expire ends the wait for a batch that took too long. If it has not started, it never will.
func (c *Committer[T]) expire(b *batch[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := storage.ErrBusy
	if b.started {
		err = fmt.Errorf("%w: the database did not confirm in time", storage.ErrUnknown)
	}
	if b.finish(nil, err) {
		close(b.done)
	}
}

// finish sets what the callers find once done is closed. It reports false if that was set before.
func (b *batch[T]) finish(outcomes []plant.Outcome, err error) bool {
	if b.finished {
		return false
	}
	b.finished = true
	b.outcomes, b.err, b.end = outcomes, err, time.Now()
	return true
}
