package commit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// slowStore takes a while for each batch and records the sizes of the batches.
type slowStore struct {
	takes   time.Duration
	first   map[int64]time.Duration // for a batch whose first plant has this id, in place of takes
	err     error
	mu      sync.Mutex
	batches []int
}

func (s *slowStore) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	s.mu.Lock()
	s.batches = append(s.batches, len(plants))
	s.mu.Unlock()
	time.Sleep(cmp.Or(s.first[plants[0].ID], s.takes))
	out := make([]plant.Outcome, len(plants))
	for i, p := range plants {
		out[i] = plant.Created
		if p.ID < 0 {
			out[i] = plant.Taken
		}
	}
	return out, s.err
}

func (s *slowStore) want(t *testing.T, batches string) {
	t.Helper()
	if got := fmt.Sprint(s.batches); got != batches {
		t.Errorf("batches of %s, want %s", got, batches)
	}
}

// creator makes batches of creates, as storage.Plants does.
type creator interface {
	CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error)
}

func record(id int64) plant.Record { return plant.Record{Store: "main", Plant: plant.Plant{ID: id}} }

type shardFunc = func(*plant.Record) (server, shard int)

func oneShard(*plant.Record) (server, shard int) { return 0, 0 }

// run starts a Committer; stop ends it and waits for its end.
func run(s creator, shard shardFunc, o commit.Options) (c *commit.Committer[plant.Record], stop func()) {
	c = commit.New(s.CreateBatch, shard, o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	return c, func() { cancel(); wg.Wait() }
}

// clients send creates to a Committer, each after all earlier ones have joined, and wait for their outcomes.
type clients struct {
	t *testing.T
	c *commit.Committer[plant.Record]
	sync.WaitGroup
}

// create sends a create of id. A negative id is taken.
func (c *clients) create(id int64, want error) {
	c.Go(func() {
		outcome := plant.Created
		switch {
		case want != nil:
			outcome = 0
		case id < 0:
			outcome = plant.Taken
		}
		if got, err := c.c.Commit(context.Background(), record(id)); got != outcome || !errors.Is(err, want) {
			c.t.Errorf("Commit(%d) = %v, %v, want %v, %v", id, got, err, outcome, want)
		}
	})
	synctest.Wait()
}

func (c *clients) createN(n int) {
	for range n {
		c.create(1, nil)
	}
}

// took runs do, waits for all outcomes and checks how long that took.
func (c *clients) took(name string, want time.Duration, do func()) {
	c.t.Helper()
	start := time.Now()
	do()
	c.Wait()
	if took := time.Since(start); took != want {
		c.t.Errorf("%s took %v, want %v", name, took, want)
	}
}

// withClock runs a test with a controlled clock on a Committer that commits to s.
func withClock(t *testing.T, s creator, o commit.Options, test func(c *clients)) {
	t.Helper()
	withShards(t, s, oneShard, o, test)
}

func withShards(t *testing.T, s creator, shard shardFunc, o commit.Options, test func(c *clients)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, stop := run(s, shard, o)
		defer stop()
		test(&clients{t: t, c: c})
	})
}

func TestWaitingPlantsAreTheNextBatch(t *testing.T) {
	s := &slowStore{takes: time.Millisecond}
	withClock(t, s, commit.Options{Batch: 8}, func(c *clients) {
		c.took("four commits of 1 ms without a timer", 4*time.Millisecond, func() {
			c.create(100, nil)
			for id := range int64(20) {
				c.create([]int64{id, -id}[id%2], nil)
			}
		})
	})
	s.want(t, "[1 8 8 4]")
}

func TestDefaults(t *testing.T) {
	s := &slowStore{takes: 40 * time.Millisecond, first: map[int64]time.Duration{9: time.Hour}}
	withClock(t, s, commit.Options{}, func(c *clients) {
		if got := c.c.Queue(); got != 4096 {
			t.Errorf("Queue() = %d, want 4096", got)
		}
		c.createN(514)
		c.Wait()
		c.createN(16) // one lane: fifteen follow the first, which is not large; then sixteen are
		c.createN(1)
		c.Wait()
		c.took("a create after a large batch", 40*time.Millisecond+500*time.Microsecond, func() { c.createN(1) })
		c.took("a store that does not return", 10*time.Second, func() { c.create(9, storage.ErrUnknown) })
	})
	s.want(t, "[1 512 1 1 16 1 1]")
}

func TestLanes(t *testing.T) {
	s := &slowStore{takes: time.Second}
	withClock(t, s, commit.Options{Lanes: 3, Batch: 1}, func(c *clients) {
		c.took("six batches in three lanes", 2*time.Second, func() { c.createN(6) })
	})
}

func TestFewPlantsWaitForABusyLane(t *testing.T) {
	s := &slowStore{takes: 40 * time.Millisecond}
	withClock(t, s, commit.Options{Lanes: 2, Large: 3}, func(c *clients) {
		c.took("three commits", 120*time.Millisecond, func() {
			c.createN(1) // the first lane
			c.createN(3) // large: the second lane
			c.createN(2) // no lane is free
			time.Sleep(40 * time.Millisecond)
			synctest.Wait()
			c.createN(2) // one lane has taken the two before; these are too few for the other
		})
	})
	s.want(t, "[1 3 2 2]")
}

// After a large batch a single lane waits for three quarters as many plants, for at most half a millisecond.
func TestPlantsAreExpectedAfterALargeBatch(t *testing.T) {
	s := &slowStore{takes: time.Millisecond}
	withClock(t, s, commit.Options{Large: 4}, func(c *clients) {
		c.took("one plant, and eight that join meanwhile", 2*time.Millisecond, func() { c.createN(9) })
		c.took("three quarters of those", 1200*time.Microsecond, func() {
			c.createN(5)
			time.Sleep(200 * time.Microsecond)
			c.createN(1)
		})
		c.took("fewer than three quarters of those", 1500*time.Microsecond, func() { c.createN(3) })
		c.took("one after those", time.Millisecond, func() { c.createN(1) })
		c.createN(9)
		c.Wait()
		time.Sleep(time.Millisecond)
		c.took("one that joins later", time.Millisecond, func() { c.createN(1) })
	})
	s.want(t, "[1 8 6 3 1 1 8 1]")
}

// A lane that is blocked delays plants in other lanes by 50 ms at most, each time.
func TestABlockedLane(t *testing.T) {
	s := &slowStore{takes: 5 * time.Second}
	withClock(t, s, commit.Options{Lanes: 3}, func(c *clients) {
		c.took("three commits of 5 s in three lanes", 5*time.Second+110*time.Millisecond, func() {
			c.createN(2)
			time.Sleep(60 * time.Millisecond)
			synctest.Wait()
			c.createN(1)
		})
	})
	s.want(t, "[1 1 1]")
}

// Plants that are overdue while all lanes are busy start in the lane that is free next.
func TestABlockedLaneAndABusyOne(t *testing.T) {
	s := &slowStore{takes: 60 * time.Millisecond, first: map[int64]time.Duration{1: 8 * time.Second}}
	withClock(t, s, commit.Options{Lanes: 2, Large: 3}, func(c *clients) {
		c.create(1, nil)
		for range 3 {
			c.create(2, nil)
		}
		start := time.Now()
		if _, err := c.c.Commit(context.Background(), record(3)); err != nil || time.Since(start) != 120*time.Millisecond {
			t.Errorf("Commit() = %v after %v, want 120 ms: the commit before it and its own", err, time.Since(start))
		}
		c.Wait()
	})
}

func TestFullQueue(t *testing.T) {
	withClock(t, &slowStore{takes: time.Second}, commit.Options{Queue: 2, Batch: 1}, func(c *clients) {
		c.createN(3) // one in flight, two waiting
		start := time.Now()
		if _, err := c.c.Commit(context.Background(), record(9)); !errors.Is(err, storage.ErrBusy) || time.Since(start) != 0 {
			t.Errorf("Commit() with a full queue = %v after %v, want %v at once", err, time.Since(start), storage.ErrBusy)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.createN(1) // one has left the queue
		c.Wait()
	})
}

func TestStopCommitsWhatIsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: time.Second}
		c, stop := run(s, oneShard, commit.Options{Lanes: 2, Batch: 4})
		creates := &clients{t: t, c: c}
		creates.createN(10)
		stop()
		creates.Wait()
		if _, err := c.Commit(t.Context(), record(11)); !errors.Is(err, storage.ErrStopping) {
			t.Errorf("Commit() after the stop = %v, want %v", err, storage.ErrStopping)
		}
	})
}

// When the storage does not return in time, the outcome of the batch in flight is unknown, and the batches
// behind it are busy and never start.
func TestTimeout(t *testing.T) {
	s := &slowStore{takes: time.Minute}
	withClock(t, s, commit.Options{Timeout: time.Second, Batch: 1}, func(c *clients) {
		c.took("the wait", time.Second, func() {
			c.create(1, storage.ErrUnknown)
			c.create(2, storage.ErrBusy)
			c.create(3, storage.ErrBusy)
		})
	})
	s.want(t, "[1]")
}

// A create that comes after a waiting batch has expired is not part of that batch.
func TestCreateAfterAnExpiredBatch(t *testing.T) {
	s := &slowStore{takes: 1200 * time.Millisecond}
	withClock(t, s, commit.Options{Timeout: time.Second}, func(c *clients) {
		c.create(1, storage.ErrUnknown)
		time.Sleep(100 * time.Millisecond)
		c.create(2, storage.ErrBusy)
		c.create(3, storage.ErrBusy)
		time.Sleep(time.Second)
		synctest.Wait() // 2 and 3 have expired, 1 is still in flight
		s.mu.Lock()
		s.takes = time.Millisecond
		s.mu.Unlock()
		c.took("the rest of the first commit and its own", 101*time.Millisecond, func() { c.create(4, nil) })
		if n := c.c.Waiting(); n != 0 {
			t.Errorf("%d plants count as waiting after the batch has expired", n)
		}
	})
	s.want(t, "[1 1]")
}

func TestErrorsReachTheWholeBatch(t *testing.T) {
	s := &slowStore{takes: time.Second, err: storage.ErrFull}
	withClock(t, s, commit.Options{}, func(c *clients) {
		for id := range int64(3) {
			c.create(id, storage.ErrFull)
		}
		c.Wait()
	})
	s.want(t, "[1 2]")
}

// Observers are told when a write was queued, when its commit started and ended, and what came of it.
func TestObservers(t *testing.T) {
	var mu sync.Mutex
	var waits, commits []string
	var start time.Time
	add := func(to *[]string, values ...any) {
		mu.Lock()
		defer mu.Unlock()
		*to = append(*to, fmt.Sprint(values...))
	}
	options := commit.Options{
		Observe: func(c commit.BatchResult) { add(&commits, c.Plants, len(c.Outcomes), c.Err, c.Took) },
		ObserveWait: func(_ context.Context, w commit.WriteTiming) {
			add(&waits, w.Joined.Sub(start), w.Started.Sub(start), w.Ended.Sub(start), w.Plants, w.Err)
		},
	}
	withClock(t, &slowStore{takes: time.Second}, options, func(c *clients) {
		start = time.Now()
		c.createN(1)
		time.Sleep(time.Millisecond)
		c.createN(1)
		c.Wait()
	})
	if want := []string{"0s 0s 1s 1 <nil>", "1ms 1s 2s 1 <nil>"}; !slices.Equal(waits, want) {
		t.Errorf("waits %q, want %q", waits, want)
	}
	if want := []string{"1 1 <nil> 1s", "1 1 <nil> 1s"}; !slices.Equal(commits, want) {
		t.Errorf("commits %q, want %q", commits, want)
	}
}

type brokenStore struct{ short bool }

func (s brokenStore) CreateBatch(context.Context, []plant.Record) ([]plant.Outcome, error) {
	if s.short {
		return nil, nil
	}
	panic("broken")
}

// A store that panics or returns too few outcomes makes the outcome unknown, and the lane continues.
func TestBrokenStorage(t *testing.T) {
	for _, s := range []brokenStore{{false}, {true}} {
		c, stop := run(s, oneShard, commit.Options{})
		for range 3 {
			if out, err := c.Commit(t.Context(), record(1)); !errors.Is(err, storage.ErrUnknown) {
				t.Errorf("Commit() = %v, %v on a broken store, want %v", out, err, storage.ErrUnknown)
			}
		}
		stop()
	}
}

func TestContextEnds(t *testing.T) {
	s := &slowStore{takes: time.Second}
	withClock(t, s, commit.Options{}, func(c *clients) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if out, err := c.c.Commit(ctx, record(1)); err != nil || out != plant.Created {
			t.Errorf("Commit() with a context that ends during the commit = %v, %v, want created", out, err)
		}
		if _, err := c.c.Commit(ctx, record(2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Commit() with a context that has ended = %v, want %v", err, context.DeadlineExceeded)
		}
	})
	s.want(t, "[1]")
}
