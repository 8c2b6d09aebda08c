package commit_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// byTens puts ids 0 to 9 on server 0, ids 10 to 19 on server 1 and so on, even and odd ones in different shards.
func byTens(r *plant.Record) (server, shard int) { return int(r.ID / 10), int(r.ID % 2) }

// shardStore records the ids of each batch, and blocks for a while on the batches of server 1.
type shardStore struct {
	mu      sync.Mutex
	batches [][]int64
}

func (s *shardStore) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	var ids []int64
	for _, p := range plants {
		ids = append(ids, p.ID)
	}
	s.mu.Lock()
	s.batches = append(s.batches, ids)
	s.mu.Unlock()
	if ids[0]/10 == 1 {
		time.Sleep(time.Second)
	}
	time.Sleep(time.Millisecond)
	return slices.Repeat([]plant.Outcome{plant.Created}, len(plants)), nil
}

func (s *shardStore) want(t *testing.T, batches ...[]int64) {
	t.Helper()
	if !slices.EqualFunc(s.batches, batches, slices.Equal[[]int64]) {
		t.Errorf("batches %v, want %v", s.batches, batches)
	}
}

// A batch has plants of one shard. The oldest batch is first, also if another is larger.
func TestBatchesOfOneShard(t *testing.T) {
	s := &shardStore{}
	withShards(t, s, byTens, commit.Options{}, func(c *clients) {
		c.took("three commits", 3*time.Millisecond, func() {
			for _, id := range []int64{0, 1, 2, 4, 3, 6} {
				c.create(id, nil)
			}
		})
	})
	s.want(t, []int64{0}, []int64{1, 3}, []int64{2, 4, 6})
}

// Two lanes commit batches of two shards at the same time if each has its share of the plants.
func TestShardsInParallel(t *testing.T) {
	s := &shardStore{}
	withShards(t, s, byTens, commit.Options{Lanes: 2}, func(c *clients) {
		c.took("two commits at a time", 2*time.Millisecond, func() {
			for _, id := range []int64{0, 1, 2, 3, 4, 5} {
				c.create(id, nil)
			}
		})
	})
	slices.SortFunc(s.batches, slices.Compare[[]int64]) // of two lanes that start at once, either is first
	s.want(t, []int64{0}, []int64{1}, []int64{2, 4}, []int64{3, 5})
}

// A lane that starts a small batch after a large one wakes another lane for the next small one.
func TestLaneWakesAnother(t *testing.T) {
	s := &slowStore{takes: 10 * time.Millisecond, first: map[int64]time.Duration{3: 30 * time.Millisecond}}
	shard := func(r *plant.Record) (int, int) { return 0, int(r.ID % 3) }
	withShards(t, s, shard, commit.Options{Lanes: 2}, func(c *clients) {
		c.took("a large batch, then two small ones at a time", 40*time.Millisecond, func() {
			for _, id := range slices.Concat([]int64{0}, slices.Repeat([]int64{3}, 16), []int64{6, 6, 1, 1}) {
				c.create(id, nil)
			}
		})
	})
	s.want(t, "[1 16 2 2]")
}

// A server that does not respond does not delay the creates of another.
func TestServersApart(t *testing.T) {
	s := &shardStore{}
	withShards(t, s, byTens, commit.Options{}, func(c *clients) {
		c.create(10, nil)
		c.create(11, nil)
		start := time.Now()
		if got, err := c.c.Commit(t.Context(), record(20)); got != plant.Created || err != nil {
			t.Errorf("Commit(20) = %v, %v", got, err)
		}
		if took := time.Since(start); took != time.Millisecond {
			t.Errorf("a create of a healthy server took %v, want 1 ms", took)
		}
		c.Wait()
	})
	s.want(t, []int64{10}, []int64{20}, []int64{11})
}

// All servers together have one queue, and all commit what is waiting when the Committer stops.
func TestServersShareTheQueue(t *testing.T) {
	s := &shardStore{}
	withShards(t, s, byTens, commit.Options{Queue: 2}, func(c *clients) {
		c.create(10, nil)
		c.create(11, nil)
		c.create(12, nil)
		c.create(13, storage.ErrBusy)
		c.create(21, storage.ErrBusy)
		c.Wait()
	})
	s.want(t, []int64{10}, []int64{11}, []int64{12})
}
