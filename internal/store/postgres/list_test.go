package postgres

import (
	"context"
	"strings"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

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
