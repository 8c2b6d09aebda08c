package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

func listIDs(t *testing.T, s *Store, after *int64, limit int) (ids []int64) {
	t.Helper()
	page, err := s.List(t.Context(), "main", after, limit)
	if err != nil {
		t.Fatalf("List(%v, %d) = %v", after, limit, err)
	}
	for _, p := range page {
		ids = append(ids, p.ID)
	}
	return ids
}

// Large plants are read one by one. Pages that contain some are complete, in order and no longer than the limit.
func TestListWithLargePlants(t *testing.T) {
	t.Parallel()
	reads := 0
	s := openTraced(t, pgtest.Database(t), &tracer{before: func(sql string) {
		if sql == getPlant {
			reads++
		}
	}})
	const limit = 65536 // bytes of name and tag that are not large
	var all []int64
	for i, length := range [][2]int{{1, 1}, {limit + 1, 0}, {limit, 0}, {1, limit}, {1, 1}} {
		id := int64(i + 1)
		create(t, s, storetest.Record("main", id, strings.Repeat("n", length[0]), strings.Repeat("t", length[1])))
		all = append(all, id)
	}
	for after := range all {
		for n := range len(all) + 2 {
			want := all[after:min(after+n, len(all))]
			id := int64(after)
			if got := listIDs(t, s, &id, n); !slices.Equal(got, want) {
				t.Errorf("List(after %d, limit %d) = %v, want %v", after, n, got, want)
			}
		}
	}
	reads = 0
	if listIDs(t, s, nil, 100); reads != 2 {
		t.Errorf("%d plants were read one by one, want the 2 large ones", reads)
	}
}

// A large plant that is removed between the query of the page and its own is not in the page.
func TestLargePlantIsRemovedDuringList(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	other := openStore(t, address)
	create(t, other, storetest.Record("main", 1, strings.Repeat("x", 70_000), "-"), record(2))
	s := openTraced(t, address, &tracer{before: func(sql string) {
		if sql == getPlant {
			if err := storetest.Remove(context.Background(), other, "main", 1, nil); err != nil {
				t.Error(err)
			}
		}
	}})
	page, err := s.List(t.Context(), "main", nil, 10)
	if err != nil || len(page) != 1 || page[0].ID != 2 {
		t.Errorf("List() = %d plants, %v, want plant 2", len(page), err)
	}
}
