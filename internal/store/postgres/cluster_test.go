package postgres

import (
	"sync"
	"testing"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

// distributed returns the URL of a database of the shared cluster whose plants are distributed by a column.
func distributed(t testing.TB, by string) string {
	t.Helper()
	return pgtest.SharedCluster(t).Prepared(t, by, func(address string) { distributeBy(t, address, by) })
}

func distributeBy(t testing.TB, address, by string) {
	t.Helper()
	if err := Distribute(t.Context(), address, Distribution{By: by}, func(string) {}); err != nil {
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
