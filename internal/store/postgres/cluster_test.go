package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
	"plantstore/internal/token"
)

// distributed returns the URL of a database of the shared cluster whose plants are distributed by a column.
func distributed(t testing.TB, by string) string {
	t.Helper()
	return pgtest.SharedCluster(t).Prepared(t, by, func(address string) { distributeBy(t, address, by) })
}

func distributeBy(t testing.TB, address, by string) {
	t.Helper()
	if err := Distribute(t.Context(), address, Distribution{By: by, Shards: 4}, func(string) {}); err != nil {
		t.Fatal(err)
	}
}

// A cluster keeps the promises of a store, on the coordinator and on a worker.
func TestStoreOnCitus(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"id", "store"} {
		t.Run("by "+by, func(t *testing.T) {
			t.Parallel()
			c := pgtest.SharedCluster(t)
			var mu sync.Mutex
			databases := map[*testing.T]string{}
			storetest.Run(t, func(t *testing.T) store.Store {
				mu.Lock()
				defer mu.Unlock()
				if databases[t] == "" {
					databases[t] = distributed(t, by)
					return openStore(t, databases[t])
				}
				return openStore(t, c.Worker(0, databases[t]))
			})
		})
	}
}

// A plant that is on the disk of a worker, but not on its synchronous standby, is not confirmed: neither to the client
// that created it, nor to one that repeats the create.
func TestWorkerWithoutStandby(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 1, nil)
	address := c.Database(t)
	distributeBy(t, address, "id")
	s := openStore(t, address)
	worker := c.Workers[0]
	create(t, s, record(0)) // opens the connection to the worker
	reload(t, worker, "synchronous_standby_names", "nobody")
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%plants%'"
	for _, attempt := range []string{"create", "repeat"} {
		created := make(chan error, 1)
		go func() {
			_, err := s.CreateBatch(context.Background(), []plant.Record{record(1)})
			created <- err
		}()
		for end := false; !end; {
			select {
			case err := <-created:
				if !errors.Is(err, store.ErrUnknown) {
					t.Errorf("%s = %v, want %v", attempt, err, store.ErrUnknown)
				}
				end = true
			case <-time.After(20 * time.Millisecond):
				worker.Query(t, databaseOf(t, address), "SELECT pg_cancel_backend(pid) "+waiting)
			}
		}
	}
	reload(t, worker, "synchronous_standby_names", "")
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	wantOutcomes(t, outcomes, err, plant.Same)
}

// The layout follows the cluster while the store is open, and results are correct before it does.
func TestLayoutFollowsTheCluster(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 2, nil)
	address := c.Database(t)
	s := openStore(t, address)
	want := func(servers, shards int) {
		t.Helper()
		if outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2), record(3)}); err != nil {
			t.Errorf("CreateBatch() = %v, %v", outcomes, err)
		}
		eventually(t, fmt.Sprintf("there are %d shards on %d servers", shards, servers), func() bool {
			seen := map[[2]int]bool{}
			on := map[int]bool{}
			for id := range 1000 {
				server, shard := s.Shard(plant.Key{Store: "main", ID: int64(id)})
				seen[[2]int{server, shard}], on[server] = true, true
			}
			return len(seen) == shards && len(on) == servers
		})
		if outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(4)}); err != nil {
			t.Errorf("CreateBatch() = %v, %v", outcomes, err)
		}
	}
	want(1, 1)
	for _, d := range []Distribution{{"id", 4}, {"id", 6}, {"store", 6}} {
		if err := Distribute(t.Context(), address, d, func(string) {}); err != nil {
			t.Fatal(err)
		}
		if d.By == "store" {
			want(1, 1) // all plants of the store are in one shard
		} else {
			want(2, d.Shards)
		}
	}
}

// Lists are complete and in order, whatever the distances between the ids.
func TestListOfAllShards(t *testing.T) {
	t.Parallel()
	s := openStore(t, distributed(t, "id"))
	var all []int64
	for i := range int64(400) {
		all = append(all, i-1000, i*i*i, 1e9+10*i, 1<<62+i) // dense, ever farther apart, regular, dense above 2^53
	}
	all = append(all, math.MinInt64, math.MinInt64+1, math.MaxInt64-1, math.MaxInt64)
	slices.Sort(all)
	all = slices.Compact(all)
	var batch []plant.Record
	for _, id := range all {
		batch = append(batch, storetest.Record("main", id, "Fern", "-"))
	}
	if _, err := s.CreateBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{1, 7, 100, 1000, 5000} {
		for round := range 2 { // with the spacings of the first round
			var read []int64
			var after *int64
			for {
				page := listIDs(t, s, after, limit)
				if len(page) == 0 || len(read) > len(all) {
					break
				}
				if limit == 7 && round == 1 {
					listIDs(t, s, nil, 50) // another client's page, with another spacing
				}
				if len(page) < limit && page[len(page)-1] != math.MaxInt64 {
					t.Errorf("limit %d, round %d: a page of %d plants is not the last", limit, round, len(page))
				}
				read = append(read, page...)
				after = &page[len(page)-1]
			}
			if !slices.Equal(read, all) {
				t.Errorf("limit %d, round %d: %d plants, want %d in order", limit, round, len(read), len(all))
			}
		}
	}
}

func TestSpacing(t *testing.T) {
	var s spacing
	page := func(ids ...int64) (page []plant.New) {
		for _, id := range ids {
			page = append(page, plant.New{ID: id})
		}
		return page
	}
	want := func(first int64, plants int, want int64) {
		t.Helper()
		if got := s.last("main", first, plants); got != want {
			t.Errorf("last(%d, %d) = %d, want %d", first, plants, got, want)
		}
	}
	want(0, 10, math.MaxInt64)
	s.record("main", page(5))
	want(0, 10, math.MaxInt64)
	s.record("main", page(10, 20, 30, 50))
	s.record("other", page(1, 2))
	want(-100, 8, -100+133)
	want(math.MaxInt64-132, 8, math.MaxInt64)
	want(math.MaxInt64-133, 8, math.MaxInt64)
	want(1<<62+150, 8, 1<<62+150+133)
	s.record("main", page(math.MinInt64, math.MaxInt64))
	want(math.MinInt64, 1, math.MaxInt64)
	for i := range 2 * maxSpacings {
		s.record(fmt.Sprint(i), page(1, 2))
	}
	if n := len(s.byStore); n > maxSpacings {
		t.Errorf("%d spacings are remembered", n)
	}
}

// Every server has its own lanes, unless the URL allows too few connections.
func TestConnectionsOfCluster(t *testing.T) {
	for _, test := range []struct{ servers, conns, all, creates, lanes int }{
		{1, 0, 10, 4, 4},
		{2, 0, 10, 4, 2},
		{3, 0, 12, 6, 2},
		{10, 0, 26, 20, 2},
		{10, 24, 24, 12, 2},
		{10, 2, 2, 1, 1},
	} {
		s := newStore(Options{})
		s.layout.Store(&layout{servers: test.servers})
		all := s.divideConns(test.conns)
		if got := [3]int{all, cap(s.createSlots), s.Lanes()}; got != [3]int{test.all, test.creates, test.lanes} {
			t.Errorf("%d servers, %d connections: %v connections, creates and lanes, want %+v",
				test.servers, test.conns, got, test)
		}
	}
}

// On a cluster a lookup of a token does not wait for reads of plants, which may hang with a node.
func TestTokensHaveTheirOwnSlots(t *testing.T) {
	t.Parallel()
	s := openStore(t, distributed(t, "id"))
	for range cap(s.otherSlots) {
		s.otherSlots <- struct{}{}
	}
	if _, err := s.TokenByHash(t.Context(), [32]byte{}); !errors.Is(err, token.ErrUnknown) {
		t.Errorf("TokenByHash() while plants are read = %v, want %v", err, token.ErrUnknown)
	}
	for range cap(s.otherSlots) {
		<-s.otherSlots
	}
}

// Names are literals in an insert on Citus. None is executed, even if the URL makes a backslash an escape.
func TestLiterals(t *testing.T) {
	t.Parallel()
	s := openStore(t, distributed(t, "id")+"&standard_conforming_strings=off")
	for i, name := range []string{`\`, `\'`, `'`, `\');DROP TABLE plants;--`, `');DROP TABLE plants;--`} {
		want := storetest.Record("main", int64(i), name, name)
		create(t, s, want)
		wantStored(t, s, want)
	}
}
