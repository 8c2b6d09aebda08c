//go:build linux

package durability

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/testkit"
)

// No create that is sent after the file, its WAL or the index of the WAL was removed, renamed or replaced returns 200.
func TestFileIsRemoved(t *testing.T) {
	rename := func(path string) error { return os.Rename(path, path+".old") }
	replace := func(path string) error {
		content, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
	}
	for _, test := range []struct {
		what, suffix string
		change       func(path string) error
	}{
		{"removed", "", os.Remove}, {"renamed", "", rename}, {"replaced", "", replace},
		{"removed", "-wal", os.Remove}, {"renamed", "-wal", rename}, {"replaced", "-wal", replace},
		{"removed", "-shm", os.Remove}, {"renamed", "-shm", rename}, {"replaced", "-shm", replace},
	} {
		t.Run(test.what+test.suffix, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "plants.db")
			s := testkit.StartFixed(t, db)
			r := newRecord(10)
			var changed atomic.Bool
			var clients sync.WaitGroup
			var before, refused atomic.Int64
			for client := range int64(4) {
				clients.Go(func() {
					for n := range int64(1_000_000) {
						after := changed.Load()
						number := r.create(t, s, client*1_000_000+n)
						switch {
						case after && number == 200:
							t.Errorf("a create that was sent after the file was %s returned 200", test.what)
							return
						case after && number == 50303:
							refused.Add(1)
							return
						case !after:
							before.Add(1)
						}
					}
				})
			}
			testkit.WaitFor(t, "creates", func() bool { return before.Load() > 100 })
			if err := test.change(db + test.suffix); err != nil {
				t.Error(err)
			}
			changed.Store(true)
			clients.Wait()
			if refused.Load() != 4 {
				t.Errorf("%d of 4 clients were refused; responses: %v", refused.Load(), r.responses)
			}
			wantNotReady(t, s, test.what)
			wantRead(t, s, 0)
		})
	}
}

// A start restricts the mode of existing files to their owner: of the database, and of the WAL of a killed process.
func TestFileModeOfExistingFiles(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(10)
	r.want(t, s, 1, 200)
	s.Kill()
	files := []string{db, db + "-wal", db + "-shm"}
	for _, file := range files {
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s = testkit.StartFixed(t, db)
	r.want(t, s, 2, 200)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want the mode 0600", file, info, err)
		}
		warning := fmt.Sprintf(`other users could access the database; only its owner can now","file":%q,"mode":"0644"`, file)
		if !strings.Contains(s.Stderr.String(), warning) {
			t.Errorf("the log has no %s", warning)
		}
	}
}

// A WAL whose database is missing may have the only copy of some plants, so it is kept.
func TestOrphanedWAL(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(10)
	r.want(t, s, 1, 200)
	s.Kill()
	if err := os.Rename(db, db+".away"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"token", "issue", "--name", "x"}} {
		_, errs, code := testkit.Run(t, nil, append(args, "--db", db)...)
		if code != 1 || !strings.Contains(errs, "put the file back, or move the WAL away") {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
	}
	if err := os.Rename(db+".away", db); err != nil {
		t.Fatal(err)
	}
	testkit.StartFixed(t, db)
	r.check(t, db)
}

// damage stops a server, changes its file and returns what the file had before.
func damage(t *testing.T, s *testkit.Server, db string, change func(content []byte)) (whole []byte) {
	t.Helper()
	s.Stop() // A clean stop copies the WAL into the file.
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Clone(whole)
	change(content)
	if err := os.WriteFile(db, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return whole
}

// A list that finds a damaged page returns 503. The service is then not ready, even if other reads succeed, until it is
// restarted with an undamaged file.
func TestDamagedFile(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(250)
	for id := range int64(100) {
		r.want(t, s, id, 200)
	}
	whole := damage(t, s, db, func(content []byte) {
		const page = 2048
		position := bytes.Index(content, []byte(r.name(90))) / page * page
		if position <= 0 {
			t.Fatal("plant 90 is not in the file")
		}
		for i := range 30 {
			content[position+i] ^= 0xff
		}
	})
	s = testkit.StartFixed(t, db)
	s.WaitReady(t, true) // A start reads only a few pages.
	wantRead(t, s, 1)
	testkit.WantError(t, "a list of damaged pages", s.Do(t, "GET", "/plants?limit=100", ""), 50303)
	for range 3 {
		wantRead(t, s, 1)
		wantNotReady(t, s, "restore a backup")
	}
	s.Stop()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(db + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(db, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s = testkit.StartFixed(t, db)
	if a := s.Do(t, "GET", "/plants?limit=100", ""); a.Status != 200 {
		t.Errorf("a list of the restored file: %d %s", a.Status, a.Body)
	}
	s.WaitReady(t, true)
	r.check(t, db)
}

// Text that no create can have stored is damage too, not an internal error.
func TestDamagedText(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.StartFixed(t, db)
	r := newRecord(20)
	for id := range int64(3) {
		r.want(t, s, id, 200)
	}
	damage(t, s, db, func(content []byte) { content[bytes.Index(content, []byte(r.name(1)))] = 0xff })
	s = testkit.StartFixed(t, db)
	for _, path := range []string{"/plants/1", "/plants"} {
		testkit.WantError(t, "GET "+path, s.Do(t, "GET", path, ""), 50303)
	}
	wantRead(t, s, 2)
	wantNotReady(t, s, "restore a backup")
	if log := s.Stderr.String(); strings.Contains(log, "panic") {
		t.Errorf("the log has a panic: %s", log)
	}
}
