package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/test/testkit/missing"
)

// A WAL without its database file is not removed.
func TestOrphanedWAL(t *testing.T) {
	for _, test := range []struct {
		what      string
		file, wal []byte // nil: it does not exist
		refused   bool
	}{
		{"no files", nil, nil, false},
		{"an empty file", []byte{}, nil, false},
		{"an empty WAL", nil, []byte{}, false},
		{"a WAL without a file", nil, []byte("x"), true},
		{"a WAL with an empty file", []byte{}, []byte("x"), true},
	} {
		path := filepath.Join(t.TempDir(), "plants.db")
		for name, content := range map[string][]byte{path: test.file, path + walSuffix: test.wal} {
			if content == nil {
				continue
			}
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(t.Context(), path)
		if refused := err != nil; refused != test.refused {
			t.Errorf("%s: Open() = %v, want an error: %v", test.what, err, test.refused)
		}
		if err == nil {
			s.Close()
			continue
		}
		if !strings.Contains(err.Error(), "put the file back, or move the WAL away") {
			t.Errorf("%s: Open() = %v, want what to do", test.what, err)
		}
		wal, err := os.ReadFile(path + walSuffix)
		if _, statErr := os.Stat(path); err != nil || string(wal) != string(test.wal) || test.file == nil && statErr == nil {
			t.Errorf("%s: the WAL is %q, %v, want it unchanged; the file: %v", test.what, wal, err, statErr)
		}
	}
}

// Only the owner can access the files afterwards, and a warning names each that others could access.
func TestRestrict(t *testing.T) {
	for before, after := range map[fs.FileMode]fs.FileMode{
		0o600: 0o600, 0o400: 0o400, 0o644: 0o600, 0o610: 0o600, 0o602: 0o600, 0o777: 0o700,
	} {
		folder := t.TempDir()
		path, link := filepath.Join(folder, "x.db"), filepath.Join(folder, "link")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		files := []string{path, path + walSuffix, path + shmSuffix}
		for _, name := range files {
			if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, before)); err != nil {
				t.Fatal(err)
			}
		}
		var warned, want string
		Restrict(link, func(message string, attrs ...any) { warned += fmt.Sprintln(message, attrs) })
		for _, name := range files {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != after {
				t.Errorf("%s: mode %v, %v after %04o, want %04o", name, info.Mode(), err, before, after)
			}
			if before != after {
				want += fmt.Sprintf("other users could access the database; only its owner can now [file %s mode %04o]\n",
					name, before)
			}
		}
		if warned != want {
			t.Errorf("mode %04o: the warnings are %s", before, warned)
		}
	}
	const file = "/proc/self/status" // every user can read it, and its mode can't be changed
	if _, err := os.Stat(file); err != nil {
		missing.Report(t, "no file whose mode can't be changed: %v", err)
	}
	Restrict(file, func(message string, attrs ...any) {
		if !strings.Contains(message, "can't be changed: operation not permitted") {
			t.Errorf("warning %q, want that the mode can't be changed, and why", message)
		}
	})
}
