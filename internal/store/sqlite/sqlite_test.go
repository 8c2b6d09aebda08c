package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
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

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// other opens the file as any other program would.
func other(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, test := range []struct{ what, query, want string }{
		{"a newer schema", "PRAGMA application_id = 0x504C4E54; PRAGMA user_version = 999", "newer program"},
		{"another program's file", "CREATE TABLE notes (text)", "another program"},
		{"another program's empty file", "PRAGMA application_id = 7; VACUUM", "another program"},
	} {
		path := filepath.Join(t.TempDir(), "x.db")
		exec(t, other(t, path), test.query)
		_, err := sqlite.Open(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Open() = %v, want %q in it", test.what, err, test.want)
		}
	}
}

// Rates came with version 2: tokens of version 1 have none.
func TestVersion1IsMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	first, err := os.ReadFile("schema/0001_plants_and_tokens.sql")
	if err != nil {
		t.Fatal(err)
	}
	older := other(t, path)
	exec(t, older, string(first)+"; PRAGMA user_version = 1")
	const add = "INSERT INTO tokens (name, hash, store, scopes, tail, created) VALUES ('%[1]s', CAST('%[1]s' AS BLOB), 'main', 'plants:read', 'tail', 1)"
	exec(t, older, fmt.Sprintf(add, "before"))
	s := open(t, path)
	exec(t, older, fmt.Sprintf(add, "after"))
	all, err := s.Tokens(t.Context())
	if err != nil || len(all) != 2 || all[0].Rate != (rate.Limit{}) || all[1].Rate != (rate.Limit{}) {
		t.Errorf("Tokens() = %v, %v, want the two of version 1, without a rate", all, err)
	}
}

func TestPathsWithStrangeCharacters(t *testing.T) {
	for _, name := range []string{"a b.db", "a?b#c.db", "a%20b.db", "é.db", "a&_pragma=synchronous(OFF).db"} {
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path)
		if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", 1, "x", "-")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// Every connection, the writer's and the readers', has the settings that durability rests on.
func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"} {
		for connection, got := range s.Settings(t, name) {
			if got != want {
				t.Errorf("%s of connection %s is %s, want %s", name, connection, got, want)
			}
		}
	}
}

// A write waits for another process that writes, and says so when it does not get its turn.
func TestLockedByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	db := other(t, path)
	db.SetMaxOpenConns(1)
	exec(t, db, "BEGIN IMMEDIATE")
	time.AfterFunc(300*time.Millisecond, func() { db.Exec("ROLLBACK") })
	if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", 1, "x", "-")}); err != nil {
		t.Errorf("CreateBatch() behind another writer = %v", err)
	}
	exec(t, db, "BEGIN IMMEDIATE")
	_, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", 2, "x", "-")})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("CreateBatch() with the file locked = %v, want %v", err, store.ErrUnavailable)
	}
	exec(t, db, "ROLLBACK")
	if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", 2, "x", "-")}); err != nil {
		t.Errorf("CreateBatch() after that = %v", err)
	}
}

func TestVersion(t *testing.T) {
	for version, ok := range map[string]bool{"3.53.4": true, "3.53.3": false, "3.52.9": false, "3.54.0": true, "4.0.0": true, "2.99.99": false, "x": false} {
		if err := sqlite.CheckVersion(version); (err == nil) != ok {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

// A page is found by its key: the ten thousandth costs what the first does.
func TestListGoesByTheKey(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "x.db"))
	if got, want := s.Plan(t), "SEARCH plants USING PRIMARY KEY (store=? AND id>?)"; got != want {
		t.Errorf("the plan of a list is %q, want %q", got, want)
	}
}

// A service that is killed again and again before it copies the log does so all the same.
func TestLogOfBeforeIsCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s := open(t, path)
	fill := func(s *sqlite.Store, first int64) {
		for id := first; id < first+200; id++ { // of 15 pages each
			record := storetest.Record("main", id, strings.Repeat("x", 60_000), "-")
			if _, err := s.CreateBatch(t.Context(), []plant.Record{record}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(s, 0)
	killed := filepath.Join(t.TempDir(), "x.db") // as a kill would leave it
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(killed+suffix, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, killed)
	before, err := os.Stat(killed)
	if err != nil {
		t.Fatal(err)
	}
	fill(s, 1000)
	if after, err := os.Stat(killed); err != nil || after.Size() <= before.Size() {
		t.Errorf("the file had %d bytes and has %d, %v: the log was not copied", before.Size(), after.Size(), err)
	}
}

// Whatever is large and whichever way it comes, the log is copied before it is much larger than it has to be.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	s := open(t, path)
	large := strings.Repeat("x", 60_000)
	logged := func(after string) {
		t.Helper()
		if log, err := os.Stat(path + "-wal"); err != nil || log.Size() > 24<<20 {
			t.Errorf("after %s the log has %d MiB (%v), want 16 or so", after, log.Size()>>20, err)
		}
	}
	for id := range int64(500) {
		if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", id, "x", large)}); err != nil {
			t.Fatal(err)
		}
	}
	logged("30 MB of tags")
	for id := range int64(500) {
		if err := s.Replace(t.Context(), "main", id, plant.Plant{Name: large}, nil); err != nil {
			t.Fatal(err)
		}
	}
	logged("30 MB of replaced names")
}

// Somebody always reads, so the log can't start over by itself.
func TestLogIsBoundedBesideReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	s := open(t, path)
	db := other(t, path)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				tx, err := db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				if err := tx.QueryRow("SELECT count(*) FROM tokens").Scan(&n); err != nil {
					t.Error(err)
				}
				select {
				case <-stop:
					tx.Rollback()
					return
				case <-time.After(5 * time.Millisecond):
					tx.Rollback()
				}
			}
		})
	}
	large := strings.Repeat("x", 1_000_000)
	for id := range int64(120) {
		if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", id, large, "-")}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
	// A chance to start over may be missed where a reader is held up.
	if log, err := os.Stat(path + "-wal"); err != nil || log.Size() > 90<<20 {
		t.Errorf("after 120 MB the log has %d MiB (%v), want 48 or so", log.Size()>>20, err)
	}
}

// Each edit is a commit of its own. However many wait, creates wait for one of them.
func TestEditsLeaveRoomForCreates(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "plants.db"))
	if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", 0, "x", "-")}); err != nil {
		t.Fatal(err)
	}
	const editors = 40
	var edited atomic.Int64
	stop := make(chan struct{})
	var editing sync.WaitGroup
	for range editors {
		editing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Replace(t.Context(), "main", 0, plant.Plant{Name: "y"}, nil); err != nil {
					t.Error(err)
					return
				}
				edited.Add(1)
			}
		})
	}
	for edited.Load() < 2*editors && !t.Failed() { // all of them are at it
		time.Sleep(time.Millisecond)
	}
	var between []int64
	for id := range int64(50) {
		before := edited.Load()
		if _, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("main", 1+id, "x", "-")}); err != nil {
			t.Fatal(err)
		}
		between = append(between, edited.Load()-before)
	}
	close(stop)
	editing.Wait()
	slices.Sort(between)
	if middle := between[len(between)/2]; middle > 10 {
		t.Errorf("%d of %d edits went before a create, want one or two", middle, editors)
	}
}
