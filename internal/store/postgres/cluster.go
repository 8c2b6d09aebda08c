package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
)

// layout is how the plants of a Citus cluster are distributed. It only makes operations cheaper: results are correct
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

// citusSettings are those of every session on Citus.
var citusSettings = map[string]string{
	"citus.max_adaptive_executor_pool_size": "1",  // connections to a node for one query: a second takes longer to open
	"citus.node_connection_timeout":         "2s", // less than timeouts.attempt

	// A generic plan can't send LIMIT $3 to the workers: they would return all plants.
	"plan_cache_mode": "force_custom_plan",
}

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
func (l *layout) find(storeName string, id int64) int {
	hash := hashInt64(id)
	if l.byStore {
		hash = hashText(storeName)
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
		if found := l.shards[l.find(stores[i], ids[i])].id; found != actual[i] {
			return fmt.Errorf("plant %d of store %q is in shard %d, but this program expects it in shard %d; "+
				"this version of Citus is not supported", ids[i], stores[i], actual[i], found)
		}
	}
	return nil
}

// refreshLayout reads the layout, and checks it if it has changed.
func (s *Store) refreshLayout(ctx context.Context, conn *pgx.Conn) error {
	l, err := readLayout(ctx, conn)
	if err != nil {
		return translate(err)
	}
	if now := s.layout.Load(); l == now || l != nil && now != nil && l.equal(now) {
		return nil
	}
	if l != nil {
		if err := l.check(ctx, conn); err != nil {
			return translate(err)
		}
	}
	s.layout.Store(l)
	return nil
}

func (l *layout) equal(other *layout) bool {
	return l.byStore == other.byStore && slices.Equal(l.shards, other.shards)
}

// Shard implements store.Plants.
func (s *Store) Shard(key plant.Key) (server, shard int) {
	l := s.layout.Load()
	if l == nil {
		return 0, 0
	}
	shard = l.find(key.Store, key.ID)
	return l.shards[shard].server, shard
}

// waitForStandbys is waitForStandby for the servers of the plants that existed before. In each shard it updates one
// of them without changing it: this commit follows the plants in the server's WAL and waits for its standby.
func (b *batch) waitForStandbys(ctx context.Context, conn *pgx.Conn) error {
	done := map[int]bool{}
	for first := range b.existing {
		r := &b.records[first]
		shard := b.layout.find(r.Store, r.ID)
		if done[shard] {
			continue
		}
		done[shard] = true
		if _, _, err := exec(ctx, conn, rewritePlant, r.Store, r.ID); err != nil {
			return err
		}
	}
	return nil
}
