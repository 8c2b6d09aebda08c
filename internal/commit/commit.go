// Package commit groups creates into batches, so that many of them share one commit.
//
// A lane is a goroutine that commits one batch after the other. As soon as its commit has ended it takes the
// plants that are waiting by then as its next batch; the policy in policy.go names the exceptions.
package commit

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// Store is what a batch is committed to: see store.Plants for what it promises.
type Store interface {
	CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error)
}

// Options bound a Committer. A zero field takes its default.
type Options struct {
	Lanes   int           // batches in flight at most; 1
	Batch   int           // plants in a batch at most; 512
	Large   int           // plants from which a batch is large, see policy; 16
	Queue   int           // plants waiting for a lane at most; 4096
	Timeout time.Duration // how long Create waits for an outcome at most; 10 s
}

// Committer groups creates into batches. It is safe for concurrent use.
type Committer struct {
	store  Store
	opts   Options
	policy policy

	mu       sync.Mutex
	queue    []*batch // not started, the oldest first; only the last one can be joined
	state    state
	expected *time.Timer // ends the wait for state.expected
	sleeping int         // lanes that wait for wake

	wake      chan struct{}
	lastBatch atomic.Int64 // plants in the batch that started last
}

// batch is shared by its callers. Each knows its index in records and finds its outcome at the same index.
type batch struct {
	records []plant.Record
	timeout *time.Timer // ends the wait of the callers
	overdue *time.Timer // sets state.overdue; nil with a single lane

	done     chan struct{} // closed when outcomes and err are set
	outcomes []plant.Outcome
	err      error

	started, finished bool // guarded by Committer.mu
}

// New returns a Committer that commits to store while Run runs.
func New(store Store, opts Options) *Committer {
	opts.Lanes = cmp.Or(opts.Lanes, 1)
	opts.Batch = cmp.Or(opts.Batch, 512)
	opts.Large = min(cmp.Or(opts.Large, 16), opts.Batch)
	opts.Queue = cmp.Or(opts.Queue, 4096)
	opts.Timeout = cmp.Or(opts.Timeout, 10*time.Second)
	c := &Committer{
		store: store, opts: opts, policy: policy{lanes: opts.Lanes, batch: opts.Batch, large: opts.Large},
		wake: make(chan struct{}, opts.Lanes),
	}
	c.expected = time.AfterFunc(expectedFor, c.stopExpecting)
	return c
}

// Queue returns how many plants may wait at most.
func (c *Committer) Queue() int { return c.opts.Queue }

// Create stores a plant and returns its outcome once that would survive power loss.
//
// It stores nothing if ctx has ended when it is called. Later the end of ctx changes nothing: the plant is part
// of a batch with others, and Create returns the outcome of that batch, also while the Committer stops.
//
// ErrBusy, ErrStopping and the error of ctx mean that nothing was stored, ErrUnknown that the outcome is unknown;
// any other error is that of the store.
func (c *Committer) Create(ctx context.Context, record plant.Record) (plant.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b, i, err := c.join(record)
	if err != nil {
		return 0, err
	}
	<-b.done
	if b.err != nil {
		return 0, b.err
	}
	return b.outcomes[i], nil
}

// join adds a record to the last batch of the queue, or to a new one, and returns that batch and the record's index.
func (c *Committer) join(record plant.Record) (*batch, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.closed {
		return nil, 0, store.ErrStopping
	}
	if c.state.waiting >= c.opts.Queue {
		return nil, 0, store.ErrBusy
	}
	var b *batch
	if n := len(c.queue); n > 0 && len(c.queue[n-1].records) < c.opts.Batch && !c.queue[n-1].finished {
		b = c.queue[n-1]
	} else {
		b = c.newBatch()
		c.queue = append(c.queue, b)
	}
	b.records = append(b.records, record)
	c.state.waiting++
	if c.policy.starts(c.state) {
		c.wakeLane()
	}
	return b, len(b.records) - 1, nil
}

func (c *Committer) newBatch() *batch {
	b := &batch{done: make(chan struct{})}
	b.timeout = time.AfterFunc(c.opts.Timeout, func() { c.expire(b) })
	if c.opts.Lanes > 1 {
		b.overdue = time.AfterFunc(overdueAfter, func() { c.setOverdue(b) })
	}
	return b
}

// wakeLane wakes a lane if one is sleeping. The caller holds mu.
func (c *Committer) wakeLane() {
	if c.sleeping > 0 {
		c.sleeping--
		c.wake <- struct{}{}
	}
}

func (c *Committer) stopExpecting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.expected = 0
	if c.state.waiting > 0 {
		c.wakeLane()
	}
}

func (c *Committer) setOverdue(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.started || b.finished {
		return
	}
	c.state.overdue = true // until a lane takes a batch, now or when one is free
	c.wakeLane()
}

// Run commits until ctx ends. It then commits what is still waiting and returns.
func (c *Committer) Run(ctx context.Context) {
	var lanes sync.WaitGroup
	for range c.opts.Lanes {
		lanes.Go(c.runLane)
	}
	<-ctx.Done()
	c.mu.Lock()
	c.state.closed = true
	for c.sleeping > 0 {
		c.wakeLane()
	}
	c.mu.Unlock()
	lanes.Wait()
}

func (c *Committer) runLane() {
	for {
		b := c.next()
		if b == nil {
			return
		}
		outcomes, err := c.commit(b.records)
		c.finish(b, outcomes, err)
	}
}

// next waits for a batch and starts it. It returns nil when the Committer is closed and the queue is empty.
func (c *Committer) next() *batch {
	c.letOthersJoin()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for c.policy.starts(c.state) {
			if b := c.take(); b != nil {
				return b
			}
		}
		if c.state.closed {
			return nil
		}
		c.sleeping++
		if c.state.expected > 0 {
			c.expected.Reset(expectedFor)
		}
		c.mu.Unlock()
		<-c.wake
		c.letOthersJoin()
		c.mu.Lock()
	}
}

func (c *Committer) letOthersJoin() {
	if c.policy.yields(int(c.lastBatch.Load())) {
		runtime.Gosched()
	}
}

// take removes the oldest batch from the queue and starts it. It returns nil if that batch has expired.
func (c *Committer) take() *batch {
	b := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	n := len(b.records)
	c.state.waiting -= n
	c.state.overdue = false
	if b.overdue != nil {
		b.overdue.Stop()
	}
	if b.finished {
		return nil
	}
	b.started = true
	c.state.active++
	c.state.inFlight += n
	c.lastBatch.Store(int64(n))
	c.expected.Stop()
	c.state.expected = c.policy.expect(n)
	return b
}

func (c *Committer) commit(records []plant.Record) (outcomes []plant.Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic in a commit: %v\n%s", store.ErrUnknown, r, debug.Stack())
		}
	}()
	outcomes, err = c.store.CreateBatch(context.Background(), records)
	if err == nil && len(outcomes) != len(records) {
		err = fmt.Errorf("%w: the store returned %d outcomes for %d plants", store.ErrUnknown, len(outcomes), len(records))
	}
	return outcomes, err
}

// finish hands the outcomes of a batch to its callers, unless the batch has expired.
func (c *Committer) finish(b *batch, outcomes []plant.Outcome, err error) {
	b.timeout.Stop()
	c.mu.Lock()
	c.state.active--
	c.state.inFlight -= len(b.records)
	first := b.finish(outcomes, err)
	c.mu.Unlock()
	if first {
		close(b.done) // without mu, which the callers need to join again
	}
}

// expire ends the wait for a batch that took too long. If it has not started, it never will.
func (c *Committer) expire(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := store.ErrBusy
	if b.started {
		err = fmt.Errorf("%w: the database did not confirm in time", store.ErrUnknown)
	}
	if b.finish(nil, err) {
		close(b.done)
	}
}

// finish sets what the callers find once done is closed. It reports false if that was set before.
func (b *batch) finish(outcomes []plant.Outcome, err error) bool {
	if b.finished {
		return false
	}
	b.finished = true
	b.outcomes, b.err = outcomes, err
	return true
}
