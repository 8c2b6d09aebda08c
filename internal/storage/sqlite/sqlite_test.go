package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/storage/tables"
)

func TestStorage(t *testing.T) {
	database := func(t *testing.T) (first, again string) {
		path := filepath.Join(t.TempDir(), "plants.db")
		return path, path
	}
	storagetest.RunOn(t, database, func(t *testing.T, path string) storage.Storage {
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// openOther opens the file as another program would.
func openOther(t *testing.T, path string) *sqlite.Conn {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// script runs statements that are separated by semicolons, in one transaction.
func script(t *testing.T, conn *sqlite.Conn, statements string) {
	t.Helper()
	if err := sqlitex.ExecuteScript(conn, statements, nil); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}

// Without an event, a create uses no table of webhooks: a store without endpoints pays nothing for them.
func TestCreateWithoutEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	s := open(t, path)
	script(t, openOther(t, path), "DROP TABLE webhooks; DROP TABLE events; DROP TABLE deliveries")
	r := storagetest.Record("main", 1, "Fern", "-")
	if outcomes, err := s.CreateBatch(t.Context(), []plant.Record{r}); err != nil || outcomes[0] != plant.Created {
		t.Errorf("CreateBatch() = %v, %v", outcomes, err)
	}
	r.ID, r.Event = 2, "msg_2"
	if outcomes, err := s.CreateBatch(t.Context(), []plant.Record{r}); err == nil {
		t.Errorf("CreateBatch() with an event = %v: the tables are still there", outcomes)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, test := range []struct{ what, statements, want string }{
		{"a newer schema", "PRAGMA application_id = 0x504C4E54; PRAGMA user_version = 999", "newer program"},
		{"the next schema", "PRAGMA application_id = 0x504C4E54; PRAGMA user_version = 7", "newer program"},
		{"another program's file", "CREATE TABLE notes (text)", "another program"},
		{"another program's empty file", "PRAGMA application_id = 7", "another program"},
		{"an existing table", "PRAGMA application_id = 0x504C4E54; CREATE TABLE plants (text)", "apply schema/0001"},
	} {
		path := filepath.Join(t.TempDir(), "x.db")
		script(t, openOther(t, path), test.statements)
		if _, err := Verify(t.Context(), path); err == nil {
			t.Errorf("%s: Verify() accepts it", test.what)
		}
		wantRefusal(t, path, test.what, test.want, nil)
	}
}

func wantRefusal(t *testing.T, path, what, want string, wantErr error) {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err == nil {
		s.Close()
		t.Errorf("%s: Open() = nil, want an error", what)
		return
	}
	if !strings.HasPrefix(err.Error(), "open the database "+path+": ") || !strings.Contains(err.Error(), want) ||
		strings.Count(err.Error(), path) != 1 || wantErr != nil && !errors.Is(err, wantErr) {
		t.Errorf("%s: Open() = %v, want %q in it", what, err, want)
	}
}

func TestOpenRefusesFiles(t *testing.T) {
	folder := t.TempDir()
	fifo := filepath.Join(folder, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, fifo, "a FIFO", "it is not a regular file", nil)
	wantRefusal(t, "/dev/null", "a device", "it is not a regular file", nil)
	wantRefusal(t, folder, "a directory", "is a directory", nil)
	wantRefusal(t, filepath.Join(folder, "none", "x.db"), "a directory that does not exist", "no such file", nil)

	text := filepath.Join(folder, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("Not a database. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, text, "a text", "damaged", storage.ErrUnavailable)

	wal := filepath.Join(folder, "wal")
	if err := os.Mkdir(wal+"-wal", 0o700); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, wal, "a directory in place of the WAL", "", storage.ErrUnavailable)
}

// A damaged table is reported by Open, not to the first client that reads it.
func TestOpenRefusesDamagedPages(t *testing.T) {
	const pageSize = 2048
	for page, table := range []string{1: "plants", 2: "tokens"} {
		if table == "" {
			continue
		}
		path := filepath.Join(t.TempDir(), table)
		if err := open(t, path).Close(); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.WriteAt(bytes.Repeat([]byte{0xAA}, pageSize), int64(page*pageSize))
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(t.Context(), path); !errors.Is(err, storage.ErrDamaged) {
			t.Errorf("Verify() of a file with damaged %s = %v", table, err)
		}
		wantRefusal(t, path, table, "damaged", storage.ErrUnavailable)
	}
}

// Version 2 added rates and version 3 the last use: tokens of earlier versions have none. A process of an earlier
// version that runs meanwhile keeps working.
func TestMigrate(t *testing.T) {
	files, err := filepath.Glob("schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	statements := ""
	for i, file := range files[:len(files)-1] {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		statements += string(text) + ";"
		t.Run(file, func(t *testing.T) { testMigrate(t, fmt.Sprintf("%s PRAGMA user_version = %d", statements, i+1)) })
	}
}

func testMigrate(t *testing.T, statements string) {
	path := filepath.Join(t.TempDir(), "x.db")
	older := openOther(t, path)
	script(t, older, statements)
	const add = "INSERT INTO tokens (name, hash, store, scopes, tail, created)" +
		" VALUES ('%[1]s', CAST('%[1]s' AS BLOB), 'main', 'plants:read', 'tail', 1)"
	script(t, older, fmt.Sprintf(add, "before"))
	if _, err := Verify(t.Context(), path); err != nil {
		t.Errorf("Verify() of an older schema = %v", err)
	}
	s := open(t, path)
	script(t, older, fmt.Sprintf(add, "after"))
	all, err := s.Tokens(t.Context())
	if err != nil || len(all) != 2 || all[0].Rate != (rate.Limit{}) || all[1].Rate != (rate.Limit{}) ||
		!all[0].LastUsed.IsZero() || !all[1].LastUsed.IsZero() {
		t.Errorf("Tokens() = %v, %v, want the two of the earlier version, without a rate and a use", all, err)
	}
}

func TestPathsWithStrangeCharacters(t *testing.T) {
	for _, name := range []string{"a b.db", "a?b#c.db", "a%20b.db", "é.db", "a&_pragma=synchronous(OFF).db"} {
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path)
		storagetest.Create(t, s, storagetest.Record("main", 1, "x", "-"))
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// Every connection has the settings that durability and safety depend on.
func TestPragmas(t *testing.T) {
	s := newStorage(t)
	conns := []*sqlite.Conn{s.writer.conn}
	for range cap(s.readers.idle) {
		conn := <-s.readers.idle
		conns = append(conns, conn)
		defer s.readers.put(conn)
	}
	for name, want := range map[string][2]string{ // of the writer and of the readers
		"journal_mode": {"wal", "wal"}, "busy_timeout": {"5000", "5000"}, "temp_store": {"2", "2"},
		"trusted_schema": {"0", "0"}, "cell_size_check": {"1", "1"}, "query_only": {"0", "1"},
		"synchronous": {"2", "2"}, "wal_autocheckpoint": {"0", "1000"},
	} {
		for i, conn := range conns {
			for row, err := range query(conn, "PRAGMA "+name) {
				if err != nil || row.ColumnText(0) != want[min(i, 1)] {
					t.Errorf("%s of connection %d is %s, %v, want %v", name, i, row.ColumnText(0), err, want[min(i, 1)])
				}
			}
		}
	}
	if len(conns) < 6 {
		t.Errorf("%d connections, want a writer and at least 5 readers", len(conns))
	}
}

// A list searches by the key: the ten thousandth page costs what the first does. So does each step to the next store.
func TestSearchesByKey(t *testing.T) {
	s := newStorage(t)
	plan := func(text string, args ...any) string {
		var steps []string
		for row, err := range s.readers.rows(t.Context(), "EXPLAIN QUERY PLAN "+text, args...) {
			if err != nil {
				t.Fatal(err)
			}
			steps = append(steps, row.ColumnText(3))
		}
		return strings.Join(steps, "\n")
	}
	got, want := plan(listPlants, "main", int64(0), int64(100)), "SEARCH plants USING PRIMARY KEY (store=? AND id>?)"
	if got != want {
		t.Errorf("the plan of a list is %q, want %q", got, want)
	}
	if got := plan(tables.NextStore, "main"); got != "SEARCH plants USING PRIMARY KEY (store>?)" {
		t.Errorf("the plan of the next store is %q", got)
	}
}
