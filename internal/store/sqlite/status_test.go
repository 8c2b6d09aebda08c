package sqlite_test

import (
	"path/filepath"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/store/storetest"
)

// The status is read while the file is open, with what is only in the WAL.
func TestReadStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	st, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	batch := []plant.Record{storetest.Record("a", 1, "x", "-"), storetest.Record("b", 1, "x", "-")}
	if _, err := st.CreateBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.ReadStatus(path, false)
	if s == nil || (err != nil) != s.InMemory {
		t.Fatalf("ReadStatus() = %v, %v", s, err)
	}
	if s.Engine != "sqlite" || s.Schema != 3 || s.Plants != 2 || !s.PlantsExact || s.Tokens != 0 ||
		s.JournalMode != "wal" || s.PageSize != 2048 || s.Pages < 3 || s.WALBytes == 0 {
		t.Errorf("ReadStatus() = %+v", s)
	}
	large := sqlite.ReadStatusUpTo(t, path, 1)
	if large.Plants != -1 || large.PlantsExact {
		t.Errorf("ReadStatus() of a large file = %+v, want that plants are not counted", large)
	}
}
