package transfer

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/store/storetest"
	"plantstore/internal/testkit"
)

// openStore opens a database without the service.
func openStore(t *testing.T, db string) store.Store {
	t.Helper()
	var st store.Store
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
func fill(t *testing.T, st store.Store, name string, n int) {
	t.Helper()
	var batch []plant.Record
	for id := range n {
		batch = append(batch, storetest.Record(name, int64(id), fmt.Sprintf("Monstera deliciosa %d", id), "climber"))
		if len(batch) == 10_000 || id == n-1 {
			if _, err := st.CreateBatch(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}

// endCopy starts plantstore copy, waits until it writes plants, and ends it with a signal. It reports false if the copy
// was faster: then the caller tries again.
func endCopy(t *testing.T, from, to string, signal syscall.Signal) (*testkit.Server, bool) {
	t.Helper()
	target := openStore(t, to)
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

// A copy that is killed again and again continues each time and completes.
func TestKill(t *testing.T) {
	const n = 60_000
	from := testkit.Engines[0].Database(t)
	fill(t, openStore(t, from), "main", n)
	token := testkit.IssueToken(t, from, "--name", "kept")
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			to, kills := "", 0
			for attempt := 0; kills == 0 && attempt < 100; attempt++ {
				to = e.Database(t)
				for killed := true; killed && kills < 3; {
					if _, killed = endCopy(t, from, to, syscall.SIGKILL); killed {
						kills++
					}
				}
			}
			there, err := openStore(t, to).Count(t.Context(), "main")
			if err != nil || kills == 0 || there == 0 {
				t.Fatalf("%d plants after %d kills, %v", there, kills, err)
			}
			got := runCopy(t, from, to) // PostgreSQL may have committed more after the last kill
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

// Ctrl-C ends a copy with a sentence on how to continue.
func TestInterrupt(t *testing.T) {
	const n = 100_000
	from := testkit.Engines[0].Database(t)
	fill(t, openStore(t, from), "main", n)
	for range 100 {
		to := testkit.Engines[0].Database(t)
		s, interrupted := endCopy(t, from, to, syscall.SIGINT)
		if !interrupted {
			continue
		}
		if code := s.WaitExit(); code != 1 || s.Stdout.String() != "" || !strings.Contains(s.Stderr.String(),
			"plantstore copy: interrupt signal received; the target keeps what was copied; run the same command again to") {
			t.Errorf("a copy that was interrupted: exit %d, %s%s", code, s.Stdout, s.Stderr)
		}
		if got := runCopy(t, from, to); got.Created == n || got.Plants != n {
			t.Errorf("the copy created %d of %d plants", got.Created, got.Plants)
		}
		return
	}
	t.Error("the copy was never interrupted")
}

// A source that a service uses can be copied, and what clients write meanwhile is detected.
func TestSourceInUse(t *testing.T) {
	from, to := testkit.Engines[0].Database(t), testkit.Engines[0].Database(t)
	s := testkit.Start(t, from)
	fill(t, openStore(t, from), "main", 50_000)
	if got := runCopy(t, from, to); got.Plants != 50_000 {
		t.Errorf("%d plants were copied", got.Plants)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var created atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for id := int64(-1); ctx.Err() == nil; id-- {
			if a, err := s.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"late"}`, id)); err != nil || a.Status != 200 {
				t.Errorf("create: %v, %v", a, err)
				return
			}
			created.Add(1)
		}
	}()
	refuseCopy(t, "stop everything that writes to either database, then run the same command again", from,
		testkit.Engines[0].Database(t))
	cancel()
	<-done
	if got := runCopy(t, from, to); got.Created != created.Load() || got.Plants != 50_000+created.Load() {
		t.Errorf("the copy created %d of %d plants, want %d", got.Created, got.Plants, created.Load())
	}
}

// A target that must not be written to is refused and stays unchanged.
func TestRefusedTarget(t *testing.T) {
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			from, to := testkit.Engines[0].Database(t), e.Database(t)
			source, target := openStore(t, from), openStore(t, to)
			fill(t, source, "main", 1000)
			testkit.IssueToken(t, from, "--name", "same")
			fill(t, target, "other", 10)
			refuseCopy(t, "the source has no plant 0 in store other; copy to an empty database", from, to)
			if n, err := target.Count(t.Context(), "main"); n != 0 || err != nil {
				t.Errorf("%d plants were written, %v", n, err)
			}
			if got := runCopy(t, from, to, "--others", "keep"); got.Plants != 1000 || len(got.Stores) != 1 {
				t.Errorf("copy --others keep = %+v", got)
			}
			if err := storetest.Replace(t.Context(), target, "main", 7, plant.Plant{Name: "different"}, nil); err != nil {
				t.Fatal(err)
			}
			refuseCopy(t, "plant 7 of store main has a different name or tag there", from, to, "--others", "keep")
			runCopy(t, from, to, "--others", "overwrite")
			runCopy(t, from, to, "--check")
			if n, err := target.Count(t.Context(), "other"); n != 0 || err != nil {
				t.Errorf("%d other plants are left, %v", n, err)
			}
			if e.Name != testkit.Engines[0].Name { // the same database by another address
				again := strings.Replace(to, "127.0.0.1", "localhost", 1)
				refuseCopy(t, "--from and --to are the same database", to, again, "--others", "overwrite")
			}
			other := e.Database(t)
			testkit.IssueToken(t, other, "--name", "same")
			refuseCopy(t, "token same of the target is not the token of that name in the source", from, other)
		})
	}
}

// Many stores are copied in few batches.
func TestManyStores(t *testing.T) {
	const stores = 1000
	from := testkit.Engines[0].Database(t)
	var batch []plant.Record
	for i := range stores {
		batch = append(batch, storetest.Record(fmt.Sprintf("store-%d", i), int64(i), "Fern", "-"))
	}
	if _, err := openStore(t, from).CreateBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			if got := runCopy(t, from, e.Database(t)); got.Created != stores || len(got.Stores) != stores {
				t.Errorf("%d plants of %d stores, want %d", got.Created, len(got.Stores), stores)
			}
		})
	}
}

// An empty database is copied, and a missing one is not created.
func TestEmptyAndMissing(t *testing.T) {
	from := testkit.Engines[0].Database(t)
	openStore(t, from)
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			if got := runCopy(t, from, e.Database(t)); got.Plants != 0 || len(got.Stores) != 0 {
				t.Errorf("copy of an empty database = %+v", got)
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "missing.db")
	refuseCopy(t, "no such file or directory", missing, from)
	if all, err := filepath.Glob(missing + "*"); len(all) > 0 {
		t.Errorf("copy created %v, %v", all, err)
	}
	refuseCopy(t, "it has no tables of Plant Store", testkit.Engines[1].Database(t), from)
}
