package postgres

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/rate"
	"plantstore/internal/store/postgres/pgtest"
)

func TestTenProcessesStartAtOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		address := pgtest.Database(t) + "&pool_max_conns=1"
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				<-start
				s, err := Open(t.Context(), address, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			})
		}
		close(start)
		wg.Wait()
		u, _ := url.Parse(address)
		rows := pgtest.Shared(t).Query(t, u.Path[1:], "SELECT version FROM plantstore_schema ORDER BY version")
		if len(rows) != 2 || rows[0][0] != "1" || rows[1][0] != "2" {
			t.Errorf("plantstore_schema = %v, want the versions 1 and 2", rows)
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	address := pgtest.Database(t)
	opened(t, address).Close()
	u, _ := url.Parse(address)
	pgtest.Shared(t).Query(t, u.Path[1:], "INSERT INTO plantstore_schema (version) VALUES (3)")
	s, err := Open(t.Context(), address, Options{})
	if err == nil {
		s.Close()
		t.Fatal("Open() of a newer schema = nil")
	}
	const want = "its schema is version 3 and this program knows versions up to 2; start the newer program"
	if !strings.Contains(err.Error(), want) {
		t.Errorf("Open() = %v, want %s", err, want)
	}
}

// A schema of version 0, with its table and nothing else, is migrated forward.
func TestOlderSchemaIsMigrated(t *testing.T) {
	address := pgtest.Database(t)
	u, _ := url.Parse(address)
	pgtest.Shared(t).Query(t, u.Path[1:], makeVersions)
	create(t, opened(t, address), record(1))
}

// Rates came with version 2. Tokens of version 1 have none, and a process of that version goes on beside this one,
// with statements that it has prepared before.
func TestVersion1IsMigrated(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	u, _ := url.Parse(address)
	first, err := schema.ReadFile("schema/0001_plants_and_tokens.sql")
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Shared(t).Query(t, u.Path[1:], makeVersions+";"+string(first)+"; INSERT INTO plantstore_schema (version) VALUES (1)")
	older, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close(t.Context())
	const add = "INSERT INTO tokens (name, hash, store, scopes, tail, created, expires) VALUES ($1, $2, 'main', 'plants:read', 'tail', 1, NULL)"
	const get = "SELECT name, hash, store, scopes, tail, created, expires, revoked FROM tokens WHERE name = $1"
	use := func(name string) {
		t.Helper()
		if _, err := older.Exec(t.Context(), add, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
		rows, err := older.Query(t.Context(), get, name)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := pgx.CollectRows(rows, pgx.RowToMap); err != nil || len(found) != 1 || found[0]["name"] != name {
			t.Fatalf("a process of version 1 finds %v, %v", found, err)
		}
	}
	use("before")
	s := opened(t, address)
	use("after")
	all, err := s.Tokens(t.Context())
	if err != nil || len(all) != 2 || all[0].Rate != (rate.Limit{}) || all[1].Rate != (rate.Limit{}) {
		t.Errorf("Tokens() = %v, %v, want the two of version 1, without a rate", all, err)
	}
}

func TestTablesOfAnotherProgram(t *testing.T) {
	address := pgtest.Database(t)
	u, _ := url.Parse(address)
	pgtest.Shared(t).Query(t, u.Path[1:], "CREATE TABLE plants (latin text)")
	s, err := Open(t.Context(), address, Options{})
	if err == nil {
		s.Close()
		t.Fatal("Open() of another program's database = nil")
	}
	if !strings.Contains(err.Error(), "another program") {
		t.Errorf("Open() = %v, want it to say that the tables are another program's", err)
	}
	if n := pgtest.Shared(t).Query(t, u.Path[1:], "SELECT count(*) FROM plantstore_schema"); n[0][0] != "0" {
		t.Errorf("%s versions are noted, want none", n[0][0])
	}
}

// A replica's user may have no more rights than the statements need.
func TestUserWithFewRights(t *testing.T) {
	server := pgtest.Shared(t)
	address := pgtest.Database(t)
	opened(t, address).Close()
	u, _ := url.Parse(address)
	gardener := "gardener_" + u.Path[1:]
	server.Query(t, u.Path[1:], fmt.Sprintf(`
		CREATE ROLE %[1]s LOGIN PASSWORD '%[2]s';
		GRANT SELECT, INSERT, UPDATE, DELETE ON plants, tokens TO %[1]s;
		GRANT SELECT ON plantstore_schema TO %[1]s`, gardener, pgtest.Password))
	as := edited(t, address, func(u *url.URL, _ url.Values) { u.User = url.UserPassword(gardener, pgtest.Password) })
	s := opened(t, as)
	create(t, s, record(1))
	create(t, s, record(1))
	if err := s.Remove(t.Context(), "main", 1, nil); err != nil {
		t.Error(err)
	}
	server.Query(t, u.Path[1:], "REVOKE INSERT ON plants FROM "+gardener)
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("Check() without the right to insert = %v", err)
	}
}
