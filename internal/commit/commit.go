// Package commit groups creates into batches, so that many of them share one commit.
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
	"plantstore/internal/store"
)

// Store is what a batch is committed to: see store.Plants for what it promises.
type Store interface {
	CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error)
}

// Options bound a Committer. A zero field takes its default.
type Options struct {
	Lanes   int           // batches in flight on one server at most; 1
	Batch   int           // plants in a batch at most; 512
	Large   int           // plants from which a batch is large, see policy; 16
	Queue   int           // plants waiting for a lane at most; 4096
	Timeout time.Duration // how long Create waits for an outcome at most; 10 s

	// Shard returns the numbers of the server and of the shard that keep a plant, as store.Plants does; nil if
	// there is only one.
	Shard func(*plant.Record) (server, shard int)

	// Observe is called after every commit; it may be nil.
	Observe func(Commit)

	// ObserveCreate is called with the context of a create after its batch has ended; it may be nil.
	ObserveCreate func(context.Context, Wait)
}

// Wait is what is known of a create at its end, for traces.
type Wait struct {
	Joined  time.Time // when the create was queued
	Started time.Time // when its commit started; zero if it did not
	Ended   time.Time
	Plants  int // in the batch
	Err     error
}

// Commit is what is known of a batch at the end of its commit, for metrics.
type Commit struct {
	Plants   int
	Outcomes []plant.Outcome // nil if Err is not nil; must not be kept or changed
	Err      error
	Start    time.Time
	Took     time.Duration
}

// Committer groups creates into batches. It is safe for concurrent use.
type Committer struct {
	store  Store
	opts   Options
	policy policy

	mu      sync.Mutex
	waiting int       // plants in all queues
	servers []*server // by their numbers
	running bool
	closed  bool

	lanes sync.WaitGroup
}

// batch is shared by its callers. Each knows its index in records and finds its outcome at the same index.
type batch struct {
	server  *server
	shard   int
	records []plant.Record
	timeout *time.Timer // ends the wait of the callers
	wait    *time.Timer // sets overdue; nil with a single lane

	done       chan struct{} // closed when outcomes, err and end are set
	outcomes   []plant.Outcome
	err        error
	start, end time.Time // of the commit; start is zero until then

	started, finished, overdue bool // guarded by Committer.mu
}

// New returns a Committer that commits to store while Run runs.
func New(store Store, opts Options) *Committer {
	opts.Lanes = cmp.Or(opts.Lanes, 1)
	opts.Batch = cmp.Or(opts.Batch, 512)
	opts.Large = min(cmp.Or(opts.Large, 16), opts.Batch)
	opts.Queue = cmp.Or(opts.Queue, 4096)
	opts.Timeout = cmp.Or(opts.Timeout, 10*time.Second)
	return &Committer{
		store: store, opts: opts, policy: policy{lanes: opts.Lanes, batch: opts.Batch, large: opts.Large},
	}
}

// Queue returns how many plants may wait at most.
func (c *Committer) Queue() int { return c.opts.Queue }

// Waiting returns how many plants wait for a lane.
func (c *Committer) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

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
	var joined time.Time
	if c.opts.ObserveCreate != nil {
		joined = time.Now()
	}
	b, i, err := c.join(record)
	if err != nil {
		return 0, err
	}
	<-b.done
	if c.opts.ObserveCreate != nil {
		c.opts.ObserveCreate(ctx, Wait{joined, b.start, b.end, len(b.records), b.err})
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.outcomes[i], nil
}

// join adds a record to the open batch of its shard, or to a new one, and returns that batch and the record's index.
func (c *Committer) join(record plant.Record) (*batch, int, error) {
	number, shard := 0, 0
	if c.opts.Shard != nil {
		number, shard = c.opts.Shard(&record)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, 0, store.ErrStopping
	}
	if c.waiting >= c.opts.Queue {
		return nil, 0, store.ErrBusy
	}
	s := c.server(number)
	b := s.openBatch(shard)
	b.records = append(b.records, record)
	c.waiting++
	s.state.waiting++
	if s.starts(b) {
		s.wakeLane()
	}
	return b, len(b.records) - 1, nil
}

// server returns the server with a number. The caller holds mu.
func (c *Committer) server(number int) *server {
	for len(c.servers) <= number {
		s := newServer(c)
		c.servers = append(c.servers, s)
		if c.running {
			s.runLanes()
		}
	}
	return c.servers[number]
}

// Run commits until ctx ends. It then commits what is still waiting and returns.
func (c *Committer) Run(ctx context.Context) {
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
		s.close()
	}
	c.mu.Unlock()
	c.lanes.Wait()
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
	b.outcomes, b.err, b.end = outcomes, err, time.Now()
	return true
}
