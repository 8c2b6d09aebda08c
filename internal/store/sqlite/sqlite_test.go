package sqlite_test

import (
	"path/filepath"
	"sync"
	"testing"

	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/store/storetest"
)

func TestStore(t *testing.T) {
	var mu sync.Mutex
	folders := map[*testing.T]string{}
	storetest.Run(t, func(t *testing.T) store.Store {
		mu.Lock()
		defer mu.Unlock()
		if folders[t] == "" {
			folders[t] = t.TempDir()
		}
		s, err := sqlite.Open(t.Context(), filepath.Join(folders[t], "plants.db"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
