package postgres

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"plantstore/internal/plant"
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
			runStoretest(t, func(t *testing.T) (first, again string) {
				address := distributed(t, by)
				return address, c.Worker(0, address)
			})
		})
	}
}

// The layout follows the cluster while the store is open, and results are correct before it does.
func TestLayoutFollowsTheCluster(t *testing.T) {
	t.Parallel()
	address := pgtest.SharedCluster(t).Database(t)
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
	for _, d := range []Distribution{{"id", 4}, {"store", 6}} {
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
	for i := range int64(200) {
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
	for _, limit := range []int{7, 100, 5000} {
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

func TestCitusEdits(t *testing.T) {
	t.Parallel()
	testEditsAreAtomic(t, pgtest.SharedCluster(t).Prepared(t, "edits", func(address string) {
		distributeBy(t, address, "store")
	}))
}

// A distributed table has triggers of Citus, and its shards are checked too, from every node.
func TestDriftOnCitus(t *testing.T) {
	address := distributed(t, "id")
	c, name := pgtest.SharedCluster(t), databaseOf(t, address)
	for what, address := range map[string]string{"coordinator": address, "worker": c.Worker(0, address)} {
		wantDrift(t, address, what, "table ", false)
	}
	c.Query(t, name, "SELECT run_command_on_shards('plants', 'ALTER TABLE %s SET UNLOGGED')")
	defer c.Query(t, name, "SELECT run_command_on_shards('plants', 'ALTER TABLE %s SET LOGGED')") // others use it next
	for what, address := range map[string]string{"coordinator": address, "worker": c.Worker(0, address)} {
		wantDrift(t, address, what, " is UNLOGGED, so a crash empties it; run ALTER TABLE plants_", true)
	}
}

// The migration changes a table that Citus has copied to every node.
func TestVersion2IsMigratedOnCitus(t *testing.T) {
	address := distributed(t, "id")
	c, name := pgtest.SharedCluster(t), databaseOf(t, address)
	c.Query(t, name, "ALTER TABLE tokens DROP COLUMN last_used")
	c.Query(t, name, "DELETE FROM plantstore_schema WHERE version = 3")
	testMigrate(t, address)
}
