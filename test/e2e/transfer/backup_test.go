package transfer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"plantstore/internal/storage/sqlite"
	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// filesIn returns the names of the files in a folder.
func filesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// wantCopy checks that a database has every plant that was confirmed before it was made, none that was not sent, and
// each as it was sent. The service starts on it, for which it has the token of s.
func wantCopy(t *testing.T, s *testkit.Server, db string, verify func(testkit.Target) (ledger.Report, error)) {
	t.Helper()
	copied := testkit.StartAgain(t, s, db)
	defer copied.Kill()
	if r, err := verify(copied.Target()); err != nil || len(r.Violations) > 0 {
		t.Errorf("%s: %v, %.1000q", db, err, r.Violations)
	}
}

// Backups under full load contain every plant that was confirmed before, and the service starts on each of them.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	db := testkit.Engines[0].Database(t)
	s := testkit.Start(t, db)
	load := ledger.New()
	stop := load.Start(t, ledger.Options{Edits: true}, s.Target())
	for range rounds {
		load.Wait(t, 1000)
		file := filepath.Join(t.TempDir(), "backup")
		verify := load.Mark()
		made := runJSON(t, "backup", "--db", db, "--to", file)
		verified := runJSON(t, "backup", "--verify", file)
		restored := filepath.Join(t.TempDir(), "restored.db")
		if got := runJSON(t, "restore", file, "--db", restored); got.Plants != made.Plants ||
			got.Plants != verified.Plants || got.Tokens != 1 || got.Plants == 0 {
			t.Errorf("backup: %v, verified: %v, restored: %v", made, verified, got)
		}
		for _, path := range []string{file, restored} {
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
			if names := filesIn(t, filepath.Dir(path)); len(names) != 1 {
				t.Errorf("the folder of %s has %q", path, names)
			}
		}
		wantCopy(t, s, restored, verify)
	}
	stop()
	load.CheckMany(t, s.Target())
}

// A backup that is interrupted, killed or finds the disk full leaves no backup.
func TestBackupIsInterrupted(t *testing.T) {
	testkit.Long(t)
	db := testkit.Engines[0].Database(t)
	fill(t, openStorage(t, db), "main", 200_000)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}
	for try := 0; len(signals) > 0; try++ {
		signal, folder := signals[0], t.TempDir()
		file := filepath.Join(folder, "backup")
		run := testkit.Launch(t, exec.Command(testkit.Binary, "backup", "--db", db, "--to", file))
		testkit.WaitFor(t, "the temporary file", func() bool { return len(filesIn(t, folder)) > 0 })
		run.Signal(signal)
		code := run.WaitExit()
		names := filesIn(t, folder)
		switch {
		case code == 0 && try < 20:
			continue
		case code == 0:
			t.Errorf("the backup was complete before %v: use more plants", signal)
		case signal == syscall.SIGKILL && !regexp.MustCompile(`^\[backup\.partial-\d+\]$`).MatchString(fmt.Sprint(names)),
			signal != syscall.SIGKILL && len(names) > 0:
			t.Errorf("%v left %q", signal, names)
		case signal != syscall.SIGKILL && !strings.Contains(run.Stderr.String(), "signal received"):
			t.Errorf("%v: %s", signal, run.Stderr)
		}
		signals = signals[1:]
	}
	volume, complete := testkit.NewVolume(t, 8<<20), filepath.Join(t.TempDir(), "backup")
	runJSON(t, "backup", "--db", db, "--to", complete)
	for _, args := range [][]string{
		{"backup", "--db", db, "--to", volume.Path("backup")}, {"restore", complete, "--db", volume.Path("plants.db")},
	} {
		stdout, stderr, code := testkit.Run(t, nil, args...)
		names := slices.DeleteFunc(filesIn(t, volume.Folder), func(name string) bool { return name == "lost+found" })
		if code != 1 || stdout != "" || !strings.HasSuffix(stderr, ": no space left on device\n") || len(names) > 0 {
			t.Errorf("%s to a full disk: exit %d, %s%s, left %q", args[0], code, stdout, stderr, names)
		}
	}
}

// The commands of the restore drill in docs/backup.md.
func TestRestoreDrill(t *testing.T) {
	testkit.Long(t)
	folder, address := t.TempDir(), testkit.FreeAddress(t)
	words := map[string]string{"127.0.0.1:8090": address, "http://127.0.0.1:8090": "http://" + address}
	for _, name := range []string{"plantstore.db", "drill.backup", "drill.db"} {
		words[name] = filepath.Join(folder, name)
	}
	s := testkit.Start(t, words["plantstore.db"])
	clients, plants := fillOverHTTP(t, s, words["plantstore.db"])
	s, listed := follow(t, s, "### Restore drill", "backup backup restore serve plants", words)
	if strings.Count(listed, "\n") != 4 || !strings.HasPrefix(listed, "ID ") {
		t.Errorf("the drill ends with %q, want 3 plants", listed)
	}
	wantClients(t, s, clients)
	wantCreates(t, s)
	if st, err := sqlite.OpenSource(t.Context(), words["drill.db"]); err != nil {
		t.Error(err)
	} else if n, err := st.Count(t.Context(), "main"); err != nil || n != plants-3 {
		t.Errorf("%d plants in store main, %v, want %d", n, err, plants-3)
	}
}
