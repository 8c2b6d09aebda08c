package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
)

// sqlQuery runs a statement as the superuser in the database of a URL.
func sqlQuery(t *testing.T, address, sql string) [][]string {
	t.Helper()
	return pgtest.Shared(t).Query(t, pgtest.Name(address), sql)
}

// A migration waits longer for locks than other statements do: another process may be migrating.
func TestMigrationWaitsForAnother(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	tx := beginTx(t, pgtest.Name(address), lockMigration)
	config, err := ParseURL(address + "&lock_timeout=10ms&statement_timeout=10ms")
	if err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() { migrated <- newStorage(Options{}).prepare(t.Context(), config.ConnConfig) }()
	waitForLock(t, pgtest.Name(address))
	time.Sleep(100 * time.Millisecond) // longer than the timeouts of the URL
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-migrated; err != nil {
		t.Errorf("prepare() = %v", err)
	}
	if got := config.ConnConfig.RuntimeParams["lock_timeout"]; got != "10ms" {
		t.Errorf("prepare() changed the configuration of the pool: lock_timeout = %s", got)
	}
}

// Version 2 added rates and version 3 the last use. Tokens of earlier versions have none, and a process of such a
// version keeps working, with statements that it has prepared before.
func TestEarlierVersionsAreMigrated(t *testing.T) {
	t.Parallel()
	files, err := schema.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	script := createVersions
	for i, file := range files[:len(files)-1] {
		text, err := schema.ReadFile("schema/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		script += fmt.Sprintf(";%s; INSERT INTO plantstore_schema (version) VALUES (%d)", text, i+1)
		t.Run(file.Name(), func(t *testing.T) {
			address := pgtest.Database(t)
			sqlQuery(t, address, script)
			testMigrate(t, address)
		})
	}
}

func testMigrate(t *testing.T, address string) {
	older, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close(t.Context())
	const add = "INSERT INTO tokens (name, hash, store, scopes, tail, created, expires) " +
		"VALUES ($1, $2, 'main', 'plants:read', 'tail', 1, NULL)"
	const get = "SELECT name, hash, store, scopes, tail, created, expires, revoked FROM tokens WHERE name = $1"
	use := func(name string) {
		t.Helper()
		_, addErr := older.Exec(t.Context(), add, name, []byte(name))
		rows, _ := older.Query(t.Context(), get, name)
		found, err := pgx.CollectRows(rows, pgx.RowToMap)
		if addErr != nil || err != nil || len(found) != 1 || found[0]["name"] != name {
			t.Fatalf("a process of an earlier version: %v; it finds %v, %v", addErr, found, err)
		}
	}
	use("before")
	s := openStorage(t, address)
	use("after")
	all, err := s.Tokens(t.Context())
	if err != nil || len(all) != 2 || all[0].Rate != (rate.Limit{}) || all[1].Rate != (rate.Limit{}) ||
		!all[0].LastUsed.IsZero() || !all[1].LastUsed.IsZero() {
		t.Errorf("Tokens() = %v, %v, want the two of the earlier version, without a rate and a use", all, err)
	}
}

func TestTablesOfAnotherProgram(t *testing.T) {
	address := pgtest.Database(t)
	sqlQuery(t, address, "CREATE TABLE plants (latin text)")
	wantOpenError(t, address, "it contains tables of another program; use another database")
	if found := sqlQuery(t, address, "SELECT 1 FROM pg_tables WHERE tablename = 'plantstore_schema'"); len(found) > 0 {
		t.Error("Open() leaves the table of versions")
	}
}

// grant creates a user with privileges and returns address with this user.
func grant(t *testing.T, address, privileges string) (as, user string) {
	t.Helper()
	user = "gardener_" + pgtest.Name(address)
	create := fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s';", user, pgtest.Password)
	sqlQuery(t, address, create+strings.ReplaceAll(privileges, "USER", user))
	return pgtest.As(address, user), user
}

// The user of a replica needs only the privileges of its statements.
func TestUserWithFewPrivileges(t *testing.T) {
	address := pgtest.Database(t)
	openStorage(t, address).Close()
	as, user := grant(t, address, `
		GRANT SELECT, INSERT, UPDATE, DELETE ON plants, tokens TO USER;
		GRANT SELECT ON plantstore_schema TO USER`)
	s := openStorage(t, as)
	storagetest.Create(t, s, record(1))
	storagetest.Create(t, s, record(1))
	if err := storagetest.Remove(t.Context(), s, "main", 1, nil); err != nil {
		t.Error(err)
	}
	sqlQuery(t, address, "REVOKE INSERT ON plants FROM "+user)
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "lacks a privilege") {
		t.Errorf("Check() without the privilege to insert = %v", err)
	}
	s.Close()
	wantOpenError(t, as, "lacks a privilege")
	pgtest.Eventually(t, "Close and an Open that failed have left no session", func() bool {
		return len(sqlQuery(t, address, "SELECT 1 FROM pg_stat_activity WHERE usename = '"+user+"'")) == 0
	})
}

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
	storagetest.Create(t, openStorage(t, address), record(1))
	sqlQuery(t, address, "INSERT INTO plantstore_schema (version) VALUES (99)")
	refused("its schema has version 99")
	sqlQuery(t, address, "DELETE FROM plantstore_schema WHERE version = 99")
	source, err := Open(t.Context(), address, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	storagetest.WantStored(t, source, record(1))
	_, err = source.CreateBatch(t.Context(), []plant.Record{record(2)})
	for what, err := range map[string]error{
		"CreateBatch": err, "Check": source.Check(t.Context()),
		"Remove":      storagetest.Remove(t.Context(), source, "main", 1, nil),
		"RevokeToken": source.RevokeToken(t.Context(), "ci", time.Now()),
	} {
		if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "for reading only") {
			t.Errorf("%s of a source = %v", what, err)
		}
	}
	sqlQuery(t, address, "DELETE FROM plantstore_schema WHERE version > 1")
	refused("its schema has version 1 and this program needs version 6; make a backup, and run plantstore db migrate ")
	if rows := sqlQuery(t, address, "SELECT max(version) FROM plantstore_schema"); rows[0][0] != "1" {
		t.Errorf("Open migrated the schema to version %v", rows)
	}
}
