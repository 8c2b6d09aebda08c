package transfer

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/storage/storagetest"
	"plantstore/test/testkit"
)

// openStorage opens a database without the service.
func openStorage(t *testing.T, db string) storage.Storage {
	t.Helper()
	var st storage.Storage
	var err error
	if postgres.IsURL(db) {
		st, err = postgres.Open(t.Context(), db, postgres.Options{})
	} else {
		st, err = sqlite.Open(t.Context(), db)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// fill creates n plants in a store.
func fill(t *testing.T, st storage.Storage, name string, n int) {
	t.Helper()
	var batch []plant.Record
	for id := range n {
		batch = append(batch, storagetest.Record(name, int64(id), fmt.Sprintf("Monstera deliciosa %d", id), "climber"))
		if len(batch) == 10_000 || id == n-1 {
			storagetest.Create(t, st, batch...)
			batch = batch[:0]
		}
	}
}

// endCopy starts plantstore copy, waits until it writes plants, and ends it with a signal. It reports false if the copy
// was faster: then the caller tries again.
func endCopy(t *testing.T, from, to string, target storage.Storage, signal syscall.Signal) (*testkit.Server, bool) {
	t.Helper()
	before, err := target.Count(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	s := testkit.Launch(t, exec.Command(testkit.Binary, "copy", "--from", from, "--to", to))
	testkit.WaitFor(t, "the copy to write plants", func() bool {
		now, err := target.Count(t.Context(), "main")
		return err == nil && now > before || !s.Running()
	})
	s.Signal(signal)
	return s, s.WaitExit() != 0
}

// A copy that was interrupted and killed continues and completes. Ctrl-C ends it with a sentence on how to continue.
func TestCopyIsEnded(t *testing.T) {
	testkit.Long(t)
	const n = 60_000
	from := testkit.Engines[0].Database(t)
	fill(t, openStorage(t, from), "main", n)
	token := testkit.IssueToken(t, from, "--name", "kept")
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			to := e.Database(t)
			target := openStorage(t, to)
			// A killed copy may commit in PostgreSQL while the next one starts, so the interrupt comes first.
			signals := []syscall.Signal{syscall.SIGINT, syscall.SIGKILL}
			for attempt, ended := 0, 0; ended < len(signals) && attempt < 100; attempt++ {
				s, ok := endCopy(t, from, to, target, signals[ended])
				if !ok {
					to, ended = e.Database(t), 0
					target = openStorage(t, to)
					continue
				}
				if signals[ended] == syscall.SIGINT && (s.WaitExit() != 1 || s.Stdout.String() != "" ||
					!strings.Contains(s.Stderr.String(), "plantstore copy: interrupt signal received; the target keeps what was "+
						"copied; run the same command again to")) {
					t.Errorf("a copy that was interrupted: exit %d, %s%s", s.WaitExit(), s.Stdout, s.Stderr)
				}
				ended++
			}
			there, err := target.Count(t.Context(), "main")
			if err != nil || there == 0 {
				t.Fatalf("%d plants after %v, %v", there, signals, err)
			}
			got := runJSON(t, "copy", "--from", from, "--to", to) // PostgreSQL may have committed more after the last kill
			if got.Created > n-there || got.Plants != n || got.Tokens != 1 {
				t.Errorf("the copy created %d of %d plants, want at most %d", got.Created, got.Plants, n-there)
			}
			s := testkit.Start(t, to)
			s.Token = token
			testkit.WantResponse(t, "read", s.Do(t, "GET", "/plants/59999", ""), 200,
				`{"id":59999,"name":"Monstera deliciosa 59999","tag":"climber"}`)
		})
	}
}
