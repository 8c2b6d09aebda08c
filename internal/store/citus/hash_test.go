package citus

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store/postgres/pgtest"
)

// The hashes are those of the server.
func TestHash(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	ids := []int64{0, 1, -1, math.MaxInt32, math.MinInt32, 1 << 32, -1 << 32, math.MaxInt64, math.MinInt64}
	texts := []string{"Fern", "Zoë", "\U0001FAB4", "\uFFFF"}
	for n := range 40 {
		texts = append(texts, strings.Repeat("x", n), strings.Repeat("é", n))
		ids = append(ids, rand.Int64(), -rand.Int64(), rand.Int64N(1000))
	}
	check := func(sql string, values any, hashes []int32) {
		t.Helper()
		rows, err := conn.Query(t.Context(), sql, values)
		if err != nil {
			t.Fatal(err)
		}
		want, err := pgx.CollectRows(rows, pgx.RowTo[int32])
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if hashes[i] != want[i] {
				t.Errorf("%s: the hash of value %d is %d, want %d", sql, i, hashes[i], want[i])
			}
		}
	}
	var ofIDs, ofTexts []int32
	for _, id := range ids {
		ofIDs = append(ofIDs, hashInt64(id))
	}
	for _, text := range texts {
		ofTexts = append(ofTexts, hashText(text))
	}
	check("SELECT hashint8(v) FROM unnest($1::bigint[]) v", ids, ofIDs)
	check(`SELECT hashtext(v COLLATE "C") FROM unnest($1::text[]) v`, texts, ofTexts)
}
