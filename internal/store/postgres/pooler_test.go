package postgres

import (
	"sync"
	"testing"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

func TestStoreBehindPooler(t *testing.T) {
	for _, mode := range pgtest.PoolModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pooler := pgtest.StartPooler(t, pgtest.Shared(t), mode)
			var mu sync.Mutex
			databases := map[*testing.T]string{}
			storetest.Run(t, func(t *testing.T) store.Store {
				mu.Lock()
				defer mu.Unlock()
				if databases[t] == "" {
					databases[t] = pooler.URL(databaseOf(t, pgtest.Database(t)))
				}
				return openStore(t, databases[t])
			})
		})
	}
}
