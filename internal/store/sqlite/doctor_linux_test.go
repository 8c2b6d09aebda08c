package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plantstore/internal/store/sqlite"
)

// A database in memory is a problem, also while it is in use.
func TestDiagnoseInMemory(t *testing.T) {
	folder, err := os.MkdirTemp("/dev/shm", "plantstore-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "plants.db")
	st, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, f := range sqlite.Diagnose(t.Context(), path, true) {
		isProblem := f.Check == "file system" && strings.Contains(f.Text, "is in memory")
		if isProblem != (f.Level == "problem") {
			t.Errorf("Diagnose() found %v", f)
		}
	}
}

// A file that the user can't write is a problem, and for root one that the owner of the folder can't.
func TestDiagnoseAccess(t *testing.T) {
	const nobody = 65534
	folder := t.TempDir()
	path := filepath.Join(folder, "plants.db")
	st, err := sqlite.Open(t.Context(), path)
	if err == nil {
		err = st.Close()
	}
	root := os.Getuid() == 0
	if err == nil && root {
		err = os.Chown(folder, nobody, nobody)
	}
	if err == nil {
		err = os.Chmod(filepath.Dir(folder), 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	if text := permissions(t, path); root != strings.HasPrefix(text, fmt.Sprintf("warning: %s belongs to user 0", path)) {
		t.Errorf("Diagnose() found %q", text)
	}
	for _, mode := range []os.FileMode{0, 0o400, 0o444} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		text := make(chan string)
		go func() {
			defer close(text)
			runtime.LockOSThread() // the thread ends with the goroutine
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); root && e != 0 {
				t.Error(e)
				return
			}
			text <- permissions(t, path)
		}()
		if got := <-text; !strings.HasPrefix(got, "problem: this user can't read and write "+path) {
			t.Errorf("Diagnose() with mode %o found %q", mode, got)
		}
	}
}

// permissions returns the findings about permissions. None is about the schema unless it was read.
func permissions(t *testing.T, path string) (text string) {
	for _, f := range sqlite.Diagnose(t.Context(), path, false) {
		if f.Check == "permissions" {
			text += f.Level + ": " + f.Text + "\n"
		} else if f.Level == "problem" && f.Check != "file system" {
			t.Errorf("Diagnose() found %v", f)
		}
	}
	return text
}
