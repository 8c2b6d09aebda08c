package postgres

import (
	"strings"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

// A source is not created and not migrated.
func TestOpenSource(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	address := server.Database(t)
	database := databaseOf(t, address)
	refused := func(want string) {
		t.Helper()
		if s, err := OpenSource(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), pgtest.Password) {
			t.Errorf("OpenSource() = %v, %v, want %q", s, err, want)
		}
	}
	refused("it has no tables of Plant Store")
	if rows := server.Query(t, database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"); len(rows) > 0 {
		t.Errorf("OpenSource created the tables %v", rows)
	}
	s := openStore(t, address)
	if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", 1, "Fern", "-")}); err != nil {
		t.Fatal(err)
	}
	server.Query(t, database, "INSERT INTO plantstore_schema (version) VALUES (99)")
	refused("its schema has version 99")
	server.Query(t, database, "DELETE FROM plantstore_schema WHERE version = 99")
	source, err := OpenSource(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if stores, err := source.Stores(t.Context()); err != nil || len(stores) != 1 {
		t.Errorf("Stores() = %v, %v", stores, err)
	}
	server.Query(t, database, "DELETE FROM plantstore_schema WHERE version > 1")
	refused("must be migrated to ")
	if rows := server.Query(t, database, "SELECT max(version) FROM plantstore_schema"); rows[0][0] != "1" {
		t.Errorf("OpenSource migrated the schema to version %v", rows)
	}
}

func TestIsSame(t *testing.T) {
	t.Parallel()
	const a = "postgres://u:p@db.example:5432/plants"
	for b, want := range map[string]bool{
		a: true, "postgresql://db.example/plants?sslmode=disable": true, "postgres://v@db.example:5432/plants": true,
		"postgres://u:p@db.example:5433/plants": false, "postgres://u:p@db.example:5432/other": false,
		"postgres://u:p@other.example:5432/plants": false, "postgres://u:p@db.example:x/plants": false, "plants": false,
	} {
		if got := IsSame(a, b); got != want {
			t.Errorf("IsSame(%s, %s) = %v", a, b, got)
		}
	}
}
