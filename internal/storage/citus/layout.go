package citus

import (
	"context"
	"sort"

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
	min    int32
	server int
}

const selectShards = `
	SELECT column_to_column_name(t.logicalrelid, t.partkey) = 'store', s.shardminvalue::int,
		dense_rank() OVER (ORDER BY min(p.groupid)) - 1
	FROM pg_dist_partition t JOIN pg_dist_shard s USING (logicalrelid) JOIN pg_dist_placement p USING (shardid)
	WHERE t.logicalrelid = to_regclass('plants') AND t.partmethod = 'h'
	GROUP BY 1, 2 ORDER BY 2`

// readLayout returns nil if plants is not distributed.
func readLayout(ctx context.Context, conn *pgx.Conn) (*layout, error) {
	rows, err := conn.Query(ctx, selectShards)
	if err != nil {
		return nil, err
	}
	l := &layout{}
	var sh shard
	_, err = pgx.ForEachRow(rows, []any{&l.byStore, &sh.min, &sh.server}, func() error {
		l.shards = append(l.shards, sh)
		l.servers = max(l.servers, sh.server+1)
		return nil
	})
	if err != nil || len(l.shards) == 0 {
		return nil, err
	}
	return l, nil
}

// find returns the index of the shard that keeps a plant.
func (l *layout) find(key plant.Key) int {
	hash := hashInt64(key.ID)
	if l.byStore {
		hash = hashText(key.Store)
	}
	after := sort.Search(len(l.shards), func(i int) bool { return l.shards[i].min > hash })
	return max(0, after-1)
}
