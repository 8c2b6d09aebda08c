package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
		{"syncDirectory", syncDirectory(path), nil},
		{"syncDirectory of a directory that does not exist", syncDirectory(missing), fs.ErrNotExist},
		{"syncWAL without a WAL", syncWAL(missing), nil},
		{"syncWAL of a directory", syncWAL(path), syscall.EISDIR},
	} {
		if !errors.Is(test.got, test.want) || test.got != nil && strings.Contains(test.got.Error(), folder) {
			t.Errorf("%s = %v, want %v without the path", test.what, test.got, test.want)
		}
	}
}
