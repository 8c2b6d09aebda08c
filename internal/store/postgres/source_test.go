package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

// A source is not created and not migrated, and refuses writes.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	refused := func(want string) {
		t.Helper()
		s, err := Open(t.Context(), address, Options{ReadOnly: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open() = %v, %v, want %q", s, err, want)
		}
	}
	refused("it has no tables of Plant Store")
	if rows := sqlQuery(t, address, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'"); len(rows) > 0 {
		t.Errorf("Open created %d tables", len(rows))
	}
	create(t, openStore(t, address), record(1))
	sqlQuery(t, address, "INSERT INTO plantstore_schema (version) VALUES (99)")
	refused("its schema has version 99")
	sqlQuery(t, address, "DELETE FROM plantstore_schema WHERE version = 99")
	source, err := Open(t.Context(), address, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	wantStored(t, source, record(1))
	_, err = source.CreateBatch(t.Context(), []plant.Record{record(2)})
	for what, err := range map[string]error{
		"CreateBatch": err, "Check": source.Check(t.Context()),
		"Remove":      storetest.Remove(t.Context(), source, "main", 1, nil),
		"RevokeToken": source.RevokeToken(t.Context(), "ci", time.Now()),
	} {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "for reading only") {
			t.Errorf("%s of a source = %v", what, err)
		}
	}
	sqlQuery(t, address, "DELETE FROM plantstore_schema WHERE version > 1")
	refused("its schema has version 1 and this program needs version 3; make a backup, and run plantstore db migrate ")
	if rows := sqlQuery(t, address, "SELECT max(version) FROM plantstore_schema"); rows[0][0] != "1" {
		t.Errorf("Open migrated the schema to version %v", rows)
	}
}
