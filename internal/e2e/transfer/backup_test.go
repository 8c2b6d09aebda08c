package transfer

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"plantstore/internal/store/sqlite"
	"plantstore/internal/testkit"
)

// runBackup runs a command that prints the content of a backup as JSON, and must succeed.
func runBackup(t *testing.T, args ...string) (s summary) {
	t.Helper()
	stdout, stderr, code := testkit.Run(t, nil, append(args, "--json")...)
	if code != 0 {
		t.Fatalf("plantstore %q: exit %d, %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatal(err, stdout)
	}
	return s
}

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

// creators create plants as fast as they can. Plant c<<32|i is the i-th of creator c.
type creators struct {
	sent, confirmed [32]atomic.Int64
	quiet           atomic.Bool // failures are expected: the service was killed
	stop            chan struct{}
	wg              sync.WaitGroup
}

func body(c, i int64) (id int64, name, json string) {
	name = fmt.Sprintf("creator %d, plant %d%s", c, i, strings.Repeat(".", int(i%300)))
	return c<<32 | i, name, fmt.Sprintf(`{"id":%d,"name":"%s","tag":"load"}`, c<<32|i, name)
}

func startCreators(t *testing.T, s *testkit.Server) *creators {
	return continueCreators(t, s, new(creators))
}

// continueCreators starts creators that continue where earlier ones ended.
func continueCreators(t *testing.T, s *testkit.Server, earlier *creators) *creators {
	all := &creators{stop: make(chan struct{})}
	for c := range all.sent {
		all.confirmed[c].Store(earlier.confirmed[c].Load())
		all.sent[c].Store(earlier.sent[c].Load())
		all.wg.Go(func() {
			for i := all.confirmed[c].Load(); ; i++ {
				select {
				case <-all.stop:
					return
				default:
				}
				_, _, text := body(int64(c), i)
				all.sent[c].Store(max(i+1, all.sent[c].Load()))
				if a, err := s.Send("POST", "/plants", text); (err != nil || a.Status != 200) && all.quiet.Load() {
					return
				} else if err != nil || a.Status != 200 {
					t.Errorf("create %d of creator %d: %v, %v", i, c, a, err)
					return
				}
				all.confirmed[c].Store(i + 1)
			}
		})
	}
	return all
}

func (all *creators) end() { close(all.stop); all.wg.Wait() }

func (all *creators) confirmedNow() (n [32]int64) {
	for c := range n {
		n[c] = all.confirmed[c].Load()
	}
	return n
}

func (all *creators) total() (n int64) {
	for _, c := range all.confirmedNow() {
		n += c
	}
	return n
}

// has reports whether a database has the last confirmed plant of each creator.
func (all *creators) has(t *testing.T, db string, confirmed [32]int64) bool {
	t.Helper()
	st, err := sqlite.OpenSource(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for c, n := range confirmed {
		id, _, _ := body(int64(c), n-1)
		if _, err := st.Get(t.Context(), "main", id); n > 0 && err != nil {
			return false
		}
	}
	return true
}

// wantPlants checks that a database has every plant that was confirmed before the backup, none that was not sent, and
// each as it was sent.
func (all *creators) wantPlants(t *testing.T, db string, confirmed [32]int64) {
	t.Helper()
	st, err := sqlite.OpenSource(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	found := [32]int64{}
	var after *int64
	for {
		page, err := st.List(t.Context(), "main", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page {
			c, i := p.ID>>32, p.ID&(1<<32-1)
			id, name, _ := body(c, i)
			if i != found[c] || p.ID != id || p.Name != name || p.Tag == nil || *p.Tag != "load" {
				t.Fatalf("found %v after %d plants of creator %d", p, found[c], c)
			}
			found[c]++
		}
		if len(page) == 0 {
			break
		}
		after = &page[len(page)-1].ID
	}
	for c := range found {
		if found[c] < confirmed[c] || found[c] > all.sent[c].Load() {
			t.Errorf("%s has %d plants of creator %d, which had %d confirmed before and has sent %d", db, found[c], c,
				confirmed[c], all.sent[c].Load())
		}
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
	load := startCreators(t, s)
	defer load.end()
	for range rounds {
		before := load.confirmed[0].Load()
		testkit.WaitFor(t, "creates", func() bool { return t.Failed() || load.confirmed[0].Load() > before+100 })
		file := filepath.Join(t.TempDir(), "backup")
		confirmed := load.confirmedNow()
		made := runBackup(t, "backup", "--db", db, "--to", file)
		verified := runBackup(t, "backup", "--verify", file)
		restored := filepath.Join(t.TempDir(), "restored.db")
		if got := runBackup(t, "restore", file, "--db", restored); !slices.Equal(got.Stores, made.Stores) ||
			!slices.Equal(got.Stores, verified.Stores) || got.Tokens != 1 || got.Plants == 0 {
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
		load.wantPlants(t, restored, confirmed)
		again := testkit.StartAgain(t, s, restored)
		_, _, text := body(3, 0)
		testkit.WantResponse(t, "repeat a create", again.Create(t, text), 200, "{"+text[strings.Index(text, ",")+1:])
		again.Kill()
	}
}

// A backup that is interrupted, killed or finds the disk full leaves no backup.
func TestBackupIsInterrupted(t *testing.T) {
	testkit.Long(t)
	db := testkit.Engines[0].Database(t)
	fill(t, openStore(t, db), "main", 200_000)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		folder := t.TempDir()
		file := filepath.Join(folder, "backup")
		run := testkit.Launch(t, exec.Command(testkit.Binary, "backup", "--db", db, "--to", file))
		testkit.WaitFor(t, "the temporary file", func() bool { return len(filesIn(t, folder)) > 0 })
		run.Signal(signal)
		code := run.WaitExit()
		names := filesIn(t, folder)
		switch {
		case code == 0:
			t.Errorf("the backup was complete before %v: use more plants", signal)
		case signal == syscall.SIGKILL && !regexp.MustCompile(`^\[backup\.partial-\d+\]$`).MatchString(fmt.Sprint(names)),
			signal != syscall.SIGKILL && len(names) > 0:
			t.Errorf("%v left %q", signal, names)
		case signal != syscall.SIGKILL && !strings.Contains(run.Stderr.String(), "signal received"):
			t.Errorf("%v: %s", signal, run.Stderr)
		}
	}
	volume, complete := testkit.NewVolume(t, 8<<20), filepath.Join(t.TempDir(), "backup")
	runBackup(t, "backup", "--db", db, "--to", complete)
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
	folder := t.TempDir()
	s := testkit.Start(t, filepath.Join(folder, "plantstore.db"))
	clients, plants := fillOverHTTP(t, s, filepath.Join(folder, "plantstore.db"))
	var ran, printed []string
	for line := range strings.Lines(testkit.CodeBlock(t, "docs/backup.md", "### Restore drill", "console")) {
		command := strings.Fields(strings.TrimPrefix(line, "$ "))[1:]
		ran = append(ran, command[0])
		for i, word := range command {
			switch word {
			case "plantstore.db", "drill.backup", "drill.db":
				command[i] = filepath.Join(folder, word)
			case "127.0.0.1:8090":
				command[i] = "127.0.0.1:0"
			case "http://127.0.0.1:8090":
				command[i] = s.URL
			}
		}
		if command[0] == "serve" {
			drill := testkit.Launch(t, exec.Command(testkit.Binary, command...))
			drill.WaitServing()
			drill.Token = s.Token
			s = drill
			continue
		}
		stdout, stderr, code := testkit.Run(t, []string{"PLANTSTORE_TOKEN=" + s.Token}, command...)
		if code != 0 {
			t.Fatalf("%s: exit %d, %s", line, code, stderr)
		}
		printed = append(printed, stdout)
	}
	if want := []string{"backup", "backup", "restore", "serve", "plants"}; !slices.Equal(ran, want) {
		t.Fatalf("the drill runs %q, want %q", ran, want)
	}
	if last := printed[len(printed)-1]; strings.Count(last, "\n") != 4 || !strings.HasPrefix(last, "ID ") {
		t.Errorf("the drill ends with %q, want 3 plants", last)
	}
	wantClients(t, s, clients)
	wantCreates(t, s)
	if st, err := sqlite.OpenSource(t.Context(), filepath.Join(folder, "drill.db")); err != nil {
		t.Error(err)
	} else if n, err := st.Count(t.Context(), "main"); err != nil || n != plants-3 {
		t.Errorf("%d plants in store main, %v, want %d", n, err, plants-3)
	}
}
