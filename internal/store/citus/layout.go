package citus

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
)

// layout is how the plants of a cluster are distributed. It only makes operations cheaper: results are correct
// even if it is out of date because a shard was just split or moved.
type layout struct {
	byStore bool    // by the column store, and not by id
	shards  []shard // in the order of min
	servers int
}

// shard keeps the plants whose hashes are from min up to the min of the next shard.
type shard struct {
	id     int64 // in Citus
	min    int32
	server int
}

const (
	selectShards = `
		SELECT column_to_column_name(t.logicalrelid, t.partkey) = 'store', s.shardid, s.shardminvalue::int, min(p.groupid)
		FROM pg_dist_partition t JOIN pg_dist_shard s USING (logicalrelid) JOIN pg_dist_placement p USING (shardid)
		WHERE t.logicalrelid = to_regclass('plants') AND t.partmethod = 'h'
		GROUP BY 1, 2, 3 ORDER BY 3`

	shardsOf = `
		SELECT CASE WHEN $3 THEN get_shard_id_for_distribution_column('plants', store)
			ELSE get_shard_id_for_distribution_column('plants', id) END
		FROM unnest($1::bigint[], $2::text[]) sample (id, store)`
)

// readLayout returns nil if plants is not distributed.
func readLayout(ctx context.Context, conn *pgx.Conn) (*layout, error) {
	rows, err := conn.Query(ctx, selectShards)
	if err != nil {
		return nil, err
	}
	l := &layout{}
	var groups []int32
	var sh shard
	var group int32
	_, err = pgx.ForEachRow(rows, []any{&l.byStore, &sh.id, &sh.min, &group}, func() error {
		if sh.server = slices.Index(groups, group); sh.server < 0 {
			sh.server = len(groups)
			groups = append(groups, group)
		}
		l.shards = append(l.shards, sh)
		return nil
	})
	if err != nil || len(l.shards) == 0 {
		return nil, err
	}
	l.servers = len(groups)
	return l, nil
}

// find returns the index of the shard that keeps a plant.
func (l *layout) find(key plant.Key) int {
	hash := hashInt64(key.ID)
	if l.byStore {
		hash = hashText(key.Store)
	}
	after, _ := slices.BinarySearchFunc(l.shards, hash, func(s shard, hash int32) int {
		if s.min <= hash {
			return -1
		}
		return 1
	})
	return max(0, after-1)
}

// check returns an error if the server puts plants into other shards than find returns.
func (l *layout) check(ctx context.Context, conn *pgx.Conn) error {
	ids := []int64{0, 1, 2, 3, -1, -2, 1 << 40, -1 << 40, math.MaxInt64, math.MinInt64}
	stores := []string{"", "main", "twelve bytes", "more than twelve bytes", "Zoë", "\U0001FAB4", "a", "b", "c", "d"}
	rows, err := conn.Query(ctx, shardsOf, ids, stores, l.byStore)
	if err != nil {
		return err
	}
	actual, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for i := range ids {
		if found := l.shards[l.find(plant.Key{Store: stores[i], ID: ids[i]})].id; found != actual[i] {
			return fmt.Errorf("plant %d of store %q is in shard %d, but this program expects it in shard %d; "+
				"this version of Citus is not supported", ids[i], stores[i], actual[i], found)
		}
	}
	return nil
}

func (l *layout) equal(other *layout) bool {
	if l == nil || other == nil {
		return l == other
	}
	return l.byStore == other.byStore && slices.Equal(l.shards, other.shards)
}
