package commit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
)

// slowStore takes a while for a batch and remembers how large the batches were.
type slowStore struct {
	takes   time.Duration
	first   map[int64]time.Duration // what a batch takes that begins with the plant, if not that
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

func record(id int64) plant.Record { return plant.Record{Store: "main", New: plant.New{ID: id}} }

// run starts a Committer; stop ends it and waits for its end.
func run(s commit.Store, o commit.Options) (c *commit.Committer, stop func()) {
	c = commit.New(s, o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	return c, func() { cancel(); wg.Wait() }
}

func TestWhoeverWaitsIsTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: time.Millisecond}
		c, stop := run(s, commit.Options{Batch: 8})
		defer stop()
		var wg sync.WaitGroup
		create := func(id int64) {
			wg.Go(func() {
				want := plant.Created
				if id%2 == 1 {
					id, want = -id, plant.Taken
				}
				if got, err := c.Create(t.Context(), record(id)); got != want || err != nil {
					t.Errorf("Create(%d) = %v, %v, want %v", id, got, err, want)
				}
			})
		}
		start := time.Now()
		create(100)
		synctest.Wait()
		for id := range int64(20) {
			create(id)
		}
		wg.Wait()
		if got, want := fmt.Sprint(s.batches), "[1 8 8 4]"; got != want {
			t.Errorf("batches of %s, want %s", got, want)
		}
		if took := time.Since(start); took != 4*time.Millisecond {
			t.Errorf("four commits of 1 ms took %v: something waited for a timer", took)
		}
	})
}

// oneByOne makes creates that begin one after the other, each when all others wait, and end when they may.
func oneByOne(t *testing.T, c *commit.Committer) (create func(n int), ended *sync.WaitGroup) {
	ended = new(sync.WaitGroup)
	return func(n int) {
		for range n {
			ended.Go(func() { c.Create(t.Context(), record(1)) })
			synctest.Wait()
		}
	}, ended
}

func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: time.Second}
		c, stop := run(s, commit.Options{Lanes: 3, Batch: 1})
		defer stop()
		var wg sync.WaitGroup
		start := time.Now()
		for id := range int64(6) {
			wg.Go(func() { c.Create(t.Context(), record(id)) })
		}
		wg.Wait()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("six batches in three lanes took %v, want two commits' time", took)
		}
	})
}

// While a lane commits, a few plants wait for it rather than take another; enough of them do not.
func TestFewWaitForABusyLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: 40 * time.Millisecond}
		c, stop := run(s, commit.Options{Lanes: 2, Enough: 3})
		defer stop()
		create, wg := oneByOne(t, c)
		start := time.Now()
		create(1) // the first lane
		create(3) // enough for the second
		create(2) // too few, and no lane is free
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		create(2) // one lane has taken the two before; these wait for it
		wg.Wait()
		if got, took := fmt.Sprint(s.batches), time.Since(start); got != "[1 3 2 2]" || took != 120*time.Millisecond {
			t.Errorf("batches of %s in %v, want [1 3 2 2] in 120 ms", got, took)
		}
	})
}

// While a lane commits many, it takes as many to be worth another.
func TestAsManyTakeAnotherLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: 40 * time.Millisecond}
		c, stop := run(s, commit.Options{Lanes: 2, Enough: 3})
		defer stop()
		create, wg := oneByOne(t, c)
		start := time.Now()
		create(1) // the first lane
		create(3) // the second
		create(5)
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		create(4) // one lane has taken the five before, and the other waits for a fifth
		time.Sleep(10 * time.Millisecond)
		create(1)
		wg.Wait()
		if got, took := fmt.Sprint(s.batches), time.Since(start); got != "[1 3 5 5]" || took != 90*time.Millisecond {
			t.Errorf("batches of %s in %v, want [1 3 5 5] in 90 ms", got, took)
		}
	})
}

// After a large batch the only lane waits for most of as many, for half a millisecond at most; after a small one
// it waits for nobody.
func TestManyAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: time.Millisecond}
		c, stop := run(s, commit.Options{Enough: 4})
		defer stop()
		create, wg := oneByOne(t, c)
		took := func(what string, want time.Duration, do func()) {
			t.Helper()
			start := time.Now()
			do()
			wg.Wait()
			if took := time.Since(start); took != want {
				t.Errorf("%s took %v, want %v", what, took, want)
			}
		}
		took("one, and eight that come meanwhile", 2*time.Millisecond, func() { create(9) })
		took("three quarters of those", 1200*time.Microsecond, func() {
			create(5)
			time.Sleep(200 * time.Microsecond)
			create(1)
		})
		took("fewer than three quarters of those", 1500*time.Microsecond, func() { create(3) })
		took("one after those", time.Millisecond, func() { create(1) })
		create(9)
		wg.Wait()
		time.Sleep(time.Millisecond)
		took("one that comes later", time.Millisecond, func() { create(1) })
		if got, want := fmt.Sprint(s.batches), "[1 8 6 3 1 1 8 1]"; got != want {
			t.Errorf("batches of %s, want %s", got, want)
		}
	})
}

// A lane that is held up holds up nobody else for long.
func TestAHeldUpLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: 5 * time.Second}
		c, stop := run(s, commit.Options{Lanes: 2})
		defer stop()
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() { c.Create(t.Context(), record(1)) })
		synctest.Wait()
		wg.Go(func() { c.Create(t.Context(), record(2)) })
		wg.Wait()
		if took := time.Since(start); took != 5*time.Second+50*time.Millisecond {
			t.Errorf("two creates in two lanes that take 5 s each took %v, want 50 ms more", took)
		}
	})
}

// Nor does it where the other lane was at work when they had waited too long.
func TestAHeldUpLaneBesideABusyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: 60 * time.Millisecond, first: map[int64]time.Duration{1: 8 * time.Second}}
		c, stop := run(s, commit.Options{Lanes: 2, Enough: 3})
		defer stop()
		var wg sync.WaitGroup
		create := func(id int64) {
			wg.Go(func() { c.Create(t.Context(), record(id)) })
			synctest.Wait()
		}
		create(1)
		for range 3 {
			create(2)
		}
		start := time.Now()
		if _, err := c.Create(t.Context(), record(3)); err != nil || time.Since(start) != 120*time.Millisecond {
			t.Errorf("behind a lane that takes 8 s and one that takes 60 ms: %v after %v, want 120 ms", err, time.Since(start))
		}
		wg.Wait()
	})
}

func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := run(&slowStore{takes: time.Second}, commit.Options{Queue: 2, Batch: 1})
		defer stop()
		for id := range int64(3) { // one under way, two waiting
			go c.Create(context.Background(), record(id))
			synctest.Wait()
		}
		start := time.Now()
		if _, err := c.Create(t.Context(), record(9)); !errors.Is(err, store.ErrBusy) || time.Since(start) != 0 {
			t.Errorf("Create() with a full queue = %v after %v, want %v at once", err, time.Since(start), store.ErrBusy)
		}
	})
}

func TestEveryoneIsAnsweredOnStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: time.Second}
		c, stop := run(s, commit.Options{Batch: 4})
		var wg sync.WaitGroup
		for id := range int64(10) {
			wg.Go(func() {
				if out, err := c.Create(context.Background(), record(id)); out != plant.Created || err != nil {
					t.Errorf("Create(%d) while stopping = %v, %v", id, out, err)
				}
			})
		}
		synctest.Wait()
		stop()
		wg.Wait()
		if _, err := c.Create(t.Context(), record(11)); !errors.Is(err, store.ErrStopping) {
			t.Errorf("Create() after the stop = %v, want %v", err, store.ErrStopping)
		}
	})
}

// A store that hangs leaves nobody hanging: who is in its batch is told that nobody knows,
// who waits behind it that nothing was stored, and what was given up is never begun.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: time.Minute}
		c, stop := run(s, commit.Options{Patience: time.Second, Batch: 1})
		var wg sync.WaitGroup
		for id, want := range []error{store.ErrUnknown, store.ErrBusy, store.ErrBusy} {
			wg.Go(func() {
				if _, err := c.Create(context.Background(), record(int64(id))); !errors.Is(err, want) {
					t.Errorf("Create(%d) = %v, want %v", id, err, want)
				}
			})
			synctest.Wait()
		}
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took != time.Second {
			t.Errorf("they waited %v, want a second", took)
		}
		stop()
		if len(s.batches) != 1 {
			t.Errorf("%d batches were begun, want the first only", len(s.batches))
		}
	})
}

func TestErrorsReachTheWholeBatch(t *testing.T) {
	s := &slowStore{err: store.ErrFull}
	c, stop := run(s, commit.Options{})
	defer stop()
	if _, err := c.Create(t.Context(), record(1)); !errors.Is(err, store.ErrFull) {
		t.Errorf("Create() = %v, want %v", err, store.ErrFull)
	}
}

type brokenStore struct{ short bool }

func (s brokenStore) CreateBatch(context.Context, []plant.Record) ([]plant.Outcome, error) {
	if s.short {
		return nil, nil
	}
	panic("broken")
}

// A store that panics or forgets an item is never taken for a success, and the lane goes on.
func TestBrokenStore(t *testing.T) {
	for _, s := range []brokenStore{{false}, {true}} {
		c, stop := run(s, commit.Options{})
		for range 3 {
			if out, err := c.Create(t.Context(), record(1)); err == nil {
				t.Errorf("Create() = %v, nil on a store that is broken", out)
			}
		}
		stop()
	}
}

func TestGoneBeforeJoining(t *testing.T) {
	s := &slowStore{}
	c, stop := run(s, commit.Options{})
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Create(ctx, record(1)); !errors.Is(err, context.Canceled) || len(s.batches) != 0 {
		t.Errorf("Create() of a caller that has gone = %v, %d batches", err, len(s.batches))
	}
}

// BenchmarkCreate is the durable path without HTTP: hand-over, SQLite, fsync.
func BenchmarkCreate(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "plants.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			c, stop := run(st, commit.Options{})
			defer stop()
			tag := "climber"
			var next sync.Mutex
			var id int64
			b.ReportAllocs()
			b.SetParallelism(max(1, clients/2))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					next.Lock()
					id++
					r := plant.Record{Store: "main", New: plant.New{ID: id, Plant: plant.Plant{Name: "Monstera deliciosa", Tag: &tag}}}
					next.Unlock()
					if out, err := c.Create(context.Background(), r); err != nil || out != plant.Created {
						b.Errorf("Create() = %v, %v", out, err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkHandOver is the path with a store that does nothing.
func BenchmarkHandOver(b *testing.B) {
	c, stop := run(&noStore{}, commit.Options{})
	defer stop()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Create(context.Background(), record(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

type noStore struct{}

func (noStore) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	return make([]plant.Outcome, len(plants)), nil
}
