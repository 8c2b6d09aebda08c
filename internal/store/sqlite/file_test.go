package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plantstore/internal/testkit/missing"
)

func TestFileErrors(t *testing.T) {
	folder := t.TempDir()
	path, missing := filepath.Join(folder, "x.db"), filepath.Join(folder, "none", "x.db")
	if err := os.Mkdir(path+"-wal", 0o700); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(folder, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what      string
		got, want error
	}{
		{"createFile", createFile(path), nil},
		{"createFile of a file that exists", createFile(path), nil},
		{"createFile in a directory that does not exist", createFile(missing), fs.ErrNotExist},
		{"createFile of a directory", createFile(folder), syscall.EISDIR},
		{"createFile of a FIFO", createFile(fifo), errNotRegular},
		{"createFile of a device", createFile("/dev/null"), errNotRegular},
	} {
		if !errors.Is(test.got, test.want) || test.got != nil && strings.Contains(test.got.Error(), folder) {
			t.Errorf("%s = %v, want %v without the path", test.what, test.got, test.want)
		}
	}
}

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

func TestRestrict(t *testing.T) {
	for _, test := range []struct{ before, after fs.FileMode }{
		{0o600, 0o600}, {0o400, 0o400}, {0o700, 0o700},
		{0o644, 0o600}, {0o640, 0o600}, {0o604, 0o600}, {0o610, 0o600}, {0o602, 0o600}, {0o777, 0o700}, {0o444, 0o400},
	} {
		folder := t.TempDir()
		path, link := filepath.Join(folder, "x.db"), filepath.Join(folder, "link")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		files := []string{path, path + "-wal", path + "-shm"}
		for _, name := range files {
			if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chmod(name, test.before)); err != nil {
				t.Fatal(err)
			}
		}
		var warned []string
		Restrict(link, func(message string, attrs ...any) { warned = append(warned, fmt.Sprint(message, attrs)) })
		if want := 3; (len(warned) == want) != (test.before != test.after) || len(warned)%want != 0 {
			t.Errorf("mode %04o: warnings %q", test.before, warned)
		}
		for i, name := range files {
			info, err := os.Stat(name)
			if err != nil || info.Mode().Perm() != test.after {
				t.Errorf("%s: mode %v, %v after %04o, want %04o", name, info.Mode(), err, test.before, test.after)
			}
			if len(warned) > 0 && (!strings.Contains(warned[i], name) ||
				!strings.Contains(warned[i], fmt.Sprintf("%04o", test.before)) || !strings.Contains(warned[i], "could access")) {
				t.Errorf("the warning about %s is %q", name, warned[i])
			}
		}
	}
}

func TestRestrictFails(t *testing.T) {
	Restrict(filepath.Join(t.TempDir(), "none"), func(message string, _ ...any) { t.Errorf("a warning: %s", message) })
	const file = "/proc/self/status" // every user can read it, and its mode can't be changed
	if _, err := os.Stat(file); err != nil {
		missing.Report(t, "no file whose mode can't be changed: %v", err)
	}
	var warned string
	Restrict(file, func(message string, attrs ...any) { warned += fmt.Sprint(message, attrs) })
	if !strings.Contains(warned, "can't be changed") || !strings.Contains(warned, "not permitted") {
		t.Errorf("warning %q, want that the mode can't be changed, and why", warned)
	}
}
