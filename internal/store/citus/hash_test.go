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
	for _, by := range []string{"id", "store"} {
		address := distributed(t, by)
		s := openStore(t, address, patient)
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		numbers := map[int64]int{} // by the id of the shard in Citus
		for i, id := range ids {
			key := plant.Key{Store: names[i%len(names)], ID: id}
			value := any(key.ID)
			if by == "store" {
				value = key.Store
			}
			sql := map[string]string{
				"id":    "SELECT get_shard_id_for_distribution_column('plants', $1::bigint)",
				"store": "SELECT get_shard_id_for_distribution_column('plants', $1::text)",
			}[by]
			var shard int64
			if err := conn.QueryRow(t.Context(), sql, value).Scan(&shard); err != nil {
				t.Fatal(err)
			}
			_, number := s.Shard(key)
			if known, ok := numbers[shard]; ok && known != number {
				t.Errorf("by %s: plant %v has number %d, want %d", by, key, number, known)
			}
			numbers[shard] = number
		}
		distinct := map[int]bool{}
		for _, number := range numbers {
			distinct[number] = true
		}
		if len(distinct) != 4 || len(numbers) != 4 {
			t.Errorf("by %s: %d numbers of %d shards, want 4 of 4", by, len(distinct), len(numbers))
		}
	}
}
