package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A database in memory is a problem, also while it is in use.
func TestDiagnoseInMemory(t *testing.T) {
	folder, err := os.MkdirTemp("/dev/shm", "plantstore-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "plants.db")
	open(t, path)
	for _, f := range Diagnose(t.Context(), path, true) {
		isProblem := f.Check == "file system" && strings.Contains(f.Text, "is in memory")
		if isProblem != (f.Level == "problem") {
			t.Errorf("Diagnose() found %v", f)
		}
	}
}

// A folder in which other users can replace the file is a problem.
func TestDiagnoseFolder(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "plants.db")
	open(t, path).Close()
	for mode, ok := range map[os.FileMode]bool{
		0o755: true, 0o777 | os.ModeSticky: true, 0o777: false, 0o770: false, 0o702: false,
	} {
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
		want := "permissions problem: other users can replace files in " + folder + "; run chmod go-w " + folder
		if ok {
			want = "permissions ok: "
		}
		if text := diagnose(t, path); !strings.Contains(text, want) {
			t.Errorf("Diagnose() of a folder with the mode %v found %s", mode, text)
		}
	}
}

// A file that the user can read and not write is a problem.
func TestDiagnoseAccess(t *testing.T) {
	const nobody = 65534
	folder := t.TempDir()
	path := filepath.Join(folder, "plants.db")
	open(t, path).Close()
	if err := errors.Join(os.Chmod(filepath.Dir(folder), 0o711), os.Chmod(path, 0o444)); err != nil {
		t.Fatal(err)
	}
	found := make(chan string)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); os.Getuid() == 0 && e != 0 {
			t.Error(e)
		}
		found <- diagnose(t, path)
	}()
	if text := <-found; !strings.Contains(text, "permissions problem: this user can't read and write "+path) {
		t.Errorf("Diagnose() found %s", text)
	}
}
