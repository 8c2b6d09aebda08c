package citus

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
)

// Plants that Citus keeps in the same shard have the same number of a shard, and others have other ones.
func TestShard(t *testing.T) {
	t.Parallel()
	ids := []int64{0, 1, -1, math.MaxInt32, math.MinInt32, 1 << 32, -1 << 32, math.MaxInt64, math.MinInt64}
	names := []string{"", "main", "twelve bytes", "Zoë", "\U0001FAB4", "\uFFFF"}
	for n := range 40 {
		ids = append(ids, rand.Int64(), -rand.Int64(), rand.Int64N(1000))
		names = append(names, strings.Repeat("x", n), strings.Repeat("é", n))
	}
	for by, sql := range map[string]string{
		"id":    "SELECT get_shard_id_for_distribution_column('plants', $1::bigint) FROM (SELECT $2::text) unused",
		"store": "SELECT get_shard_id_for_distribution_column('plants', $2::text) FROM (SELECT $1::bigint) unused",
	} {
		address := distributed(t, by)
		s := openStore(t, address, patient)
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		numbers, shards := map[int64]int{}, map[int]int64{} // of shards, by their ids in Citus and the other way round
		for i, id := range ids {
			key := plant.Key{Store: names[i%len(names)], ID: id}
			var shard int64
			if err := conn.QueryRow(t.Context(), sql, key.ID, key.Store).Scan(&shard); err != nil {
				t.Fatal(err)
			}
			_, number := s.Shard(key)
			if known, ok := numbers[shard]; ok && (known != number || shards[number] != shard) {
				t.Errorf("by %s: plant %v is in shard %d, want %d", by, key, number, known)
			}
			numbers[shard], shards[number] = number, shard
		}
		if len(shards) != 4 {
			t.Errorf("by %s: %d shards, want 4", by, len(shards))
		}
	}
}
