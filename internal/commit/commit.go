// Package commit turns many creates into few commits.
//
// A lane commits as soon as its previous commit has ended: whoever waits by then is the next batch.
// There is no timer on that path, so a lone client pays one commit and nothing more. Only after a large
// batch is the next one waited for, a moment: see hold.
package commit

import (
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
	Lanes    int           // batches under way at once; 1
	Batch    int           // plants in one batch at most; 512
	Enough   int           // plants that are worth a lane of their own, at least, while others commit; 16
	Queue    int           // plants that may wait at most; 4096
	Patience time.Duration // how long a caller waits at most; 10 s
}

// Committer groups creates into batches. It is safe for concurrent use.
type Committer struct {
	store Store
	opts  Options

	mu      sync.Mutex
	queue   []*batch // not begun, the oldest first; all but the last are full
	waiting int      // plants in queue
	active  int      // lanes that commit
	begun   int      // plants that those commit
	hurry   bool     // the first of queue has waited too long for those
	hold    int      // plants that are waited for while no lane commits
	grace   *time.Timer
	alone   atomic.Bool // the last batch had one plant
	idle    int         // lanes that wait for a wake
	closed  bool

	wake chan struct{}
}

// batch is what its callers share: each remembers its place in records and finds its outcome there.
type batch struct {
	records []plant.Record
	late    *time.Timer
	stuck   *time.Timer // nil where no other lane could help

	done     chan struct{} // closed when what follows is set
	outcomes []plant.Outcome
	err      error

	begun, answered bool // guarded by Committer.mu
}

// New makes a Committer on a store. Run makes it work.
func New(store Store, opts Options) *Committer {
	opts.Lanes = or(opts.Lanes, 1)
	opts.Batch = or(opts.Batch, 512)
	opts.Enough = min(or(opts.Enough, 16), opts.Batch)
	opts.Queue = or(opts.Queue, 4096)
	opts.Patience = or(opts.Patience, 10*time.Second)
	c := &Committer{store: store, opts: opts, wake: make(chan struct{}, opts.Lanes)}
	c.grace = time.AfterFunc(graceLasts, c.letGo)
	return c
}

func or[T int | time.Duration](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}

// Queue is how many plants may wait at most.
func (c *Committer) Queue() int { return c.opts.Queue }

// Create stores a plant and returns its outcome once that would survive power loss.
//
// A caller that has gone away before its plant joins a batch stores nothing; after that the
// batch goes on without it. Everyone who has joined is answered, on shutdown too.
func (c *Committer) Create(ctx context.Context, record plant.Record) (plant.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b, place, err := c.join(record)
	if err != nil {
		return 0, err
	}
	<-b.done
	if b.err != nil {
		return 0, b.err
	}
	return b.outcomes[place], nil
}

func (c *Committer) join(record plant.Record) (b *batch, place int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, 0, store.ErrStopping
	}
	if c.waiting >= c.opts.Queue {
		return nil, 0, store.ErrBusy
	}
	if n := len(c.queue); n > 0 && len(c.queue[n-1].records) < c.opts.Batch && !c.queue[n-1].answered {
		b = c.queue[n-1]
	} else {
		b = &batch{done: make(chan struct{})}
		b.late = time.AfterFunc(c.opts.Patience, func() { c.expire(b) })
		if c.opts.Lanes > 1 {
			b.stuck = time.AfterFunc(stuckAfter, func() { c.unstick(b) })
		}
		c.queue = append(c.queue, b)
	}
	place = len(b.records)
	b.records = append(b.records, record)
	c.waiting++
	if c.pays() {
		c.rouse()
	}
	return b, place, nil
}

// pays reports whether a lane should begin a batch now. While others commit, fewer plants than those
// have do better to wait: the lane that is free next takes them. More wait only where a commit takes long.
func (c *Committer) pays() bool {
	if c.active == 0 {
		return c.waiting >= c.hold
	}
	return c.waiting >= max(c.opts.Enough, c.begun/c.active) || c.hurry
}

// graceLasts is how long a lane waits, at most, for as many as it has to hold on for.
const graceLasts = 500 * time.Microsecond

// holdOn makes the only lane wait for most of as many plants as it takes now, if those are many: the
// clients that it is about to answer will send the next ones at once, and a commit for the first few of
// them would cost as much as one for all.
func (c *Committer) holdOn(taken int) {
	c.grace.Stop()
	c.hold = 0
	if c.opts.Lanes == 1 && taken >= c.opts.Enough && taken < c.opts.Batch { // behind a full one are more already
		c.hold = taken * 3 / 4
	}
}

// letGo ends that. Who has not come by now may never come.
func (c *Committer) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = 0
	if c.waiting > 0 {
		c.rouse()
	}
}

// rouse wakes a lane, if one waits. The caller holds mu.
func (c *Committer) rouse() {
	if c.idle > 0 {
		c.idle--
		c.wake <- struct{}{}
	}
}

// stuckAfter is how long a few plants wait for lanes that commit: one may be held up by a lock.
const stuckAfter = 50 * time.Millisecond

func (c *Committer) unstick(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.begun || b.answered {
		return
	}
	c.hurry = true // also for a lane that is free later
	c.rouse()
}

// Run commits until ctx ends, then answers everyone who still waits and returns.
func (c *Committer) Run(ctx context.Context) {
	var lanes sync.WaitGroup
	for range c.opts.Lanes {
		lanes.Go(c.lane)
	}
	<-ctx.Done()
	c.mu.Lock()
	c.closed = true
	for ; c.idle > 0; c.idle-- {
		c.wake <- struct{}{}
	}
	c.mu.Unlock()
	lanes.Wait()
}

func (c *Committer) lane() {
	for {
		b := c.next()
		if b == nil {
			return
		}
		outcomes, err := c.commit(b.records)
		c.answer(b, outcomes, err)
	}
}

// next waits for a batch and begins it. It returns nil when there will be none.
func (c *Committer) next() *batch {
	c.giveWay()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.queue) > 0 && (c.pays() || c.closed) {
			b := c.queue[0]
			c.queue[0] = nil
			c.queue = c.queue[1:]
			c.waiting -= len(b.records)
			c.hurry = false
			if b.stuck != nil {
				b.stuck.Stop()
			}
			if !b.answered {
				b.begun = true
				c.active++
				c.begun += len(b.records)
				c.alone.Store(len(b.records) == 1)
				c.holdOn(len(b.records))
				return b
			}
		}
		if c.closed {
			return nil
		}
		c.idle++
		if c.hold > 0 {
			c.grace.Reset(graceLasts)
		}
		c.mu.Unlock()
		<-c.wake
		c.giveWay()
		c.mu.Lock()
	}
}

// giveWay lets who is about to join get in first: fewer, larger commits. A lone client has nobody to
// wait for, and would be passed on from one processor to another.
func (c *Committer) giveWay() {
	if !c.alone.Load() {
		runtime.Gosched()
	}
}

func (c *Committer) commit(records []plant.Record) (outcomes []plant.Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic in a commit: %v\n%s", store.ErrUnknown, r, debug.Stack())
		}
	}()
	outcomes, err = c.store.CreateBatch(context.Background(), records)
	if err == nil && len(outcomes) != len(records) {
		err = fmt.Errorf("%w: the store gave %d outcomes for %d plants", store.ErrUnknown, len(outcomes), len(records))
	}
	return outcomes, err
}

// answer tells every caller of a batch what became of it, unless they were told already.
func (c *Committer) answer(b *batch, outcomes []plant.Outcome, err error) {
	b.late.Stop()
	c.mu.Lock()
	c.active--
	c.begun -= len(b.records)
	told := b.answer(outcomes, err)
	c.mu.Unlock()
	if told {
		close(b.done) // outside of mu, which those who join next want
	}
}

// expire ends the wait of a batch that took too long. One that has not begun is never begun.
func (c *Committer) expire(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := store.ErrBusy
	if b.begun {
		err = fmt.Errorf("%w: the database did not confirm in time", store.ErrUnknown)
	}
	if b.answer(nil, err) {
		close(b.done)
	}
}

// answer sets what the callers find when done is closed. It reports false where that was set before.
func (b *batch) answer(outcomes []plant.Outcome, err error) bool {
	if b.answered {
		return false
	}
	b.answered = true
	b.outcomes, b.err = outcomes, err
	return true
}
