package dbcopy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

var engines = map[string]func(t testing.TB) storage.Storage{
	"sqlite": func(t testing.TB) storage.Storage {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "plants.db"))
		return closeLater(t, s, err)
	},
	"postgres": func(t testing.TB) storage.Storage {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Options{})
		return closeLater(t, s, err)
	},
}

func closeLater(t testing.TB, s storage.Storage, err error) storage.Storage {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func fill(t testing.TB, s storage.Storage, name string, n int) {
	t.Helper()
	var all []plant.Record
	for id := range n {
		all = append(all, storagetest.Record(name, int64(id), fmt.Sprint("Fern ", id), "shade"))
	}
	storagetest.Create(t, s, all...)
}

// texts are easily changed by a conversion, or so large that a page ends early.
var texts = append([]string{
	"", " ", "\t\r\n\v\f", "\x01\x1f\x7f", `quote " ' back\slash`, "e\u0301 is not \u00e9", "\ufeffBOM", "\U0010ffff",
	"'; DROP TABLE plants; --", "%s $1 ? :x", "NULL", `\x00`, `\N`, `\.`, "{a,b}",
}, slices.Repeat([]string{strings.Repeat("60 KB ", 10_000)}, 5)...)

// fillVaried creates stores of all kinds and returns the number of plants.
func fillVaried(t testing.TB, s storage.Storage) (plants int64) {
	t.Helper()
	var all []plant.Record
	for i, text := range texts {
		all = append(all, storagetest.Record("text", int64(i), text, "-"), storagetest.Record("text", -int64(i)-1, "x", text))
	}
	for _, id := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64} {
		all = append(all, storagetest.Record("ids", id, "n", ""))
	}
	for i := range 30 {
		all = append(all, storagetest.Record(fmt.Sprintf("store-%d", i), int64(i), "n", "-"))
	}
	storagetest.Create(t, s, all...)
	fill(t, s, "main", pageSize+1) // two pages
	return int64(len(all)) + pageSize + 1
}

var start = time.UnixMilli(1_700_000_000_123).UTC()

// addTokens adds tokens with everything that a token can have.
func addTokens(t testing.TB, s storage.Storage) []token.Token {
	t.Helper()
	plain, _ := token.New("plain", "main", token.AllScopes, start, time.Time{})
	full, _ := token.New("full", "other", token.Create, start.Add(time.Second), start.Add(time.Hour))
	full.Rate = rate.Limit{Count: 100, Per: time.Minute, Burst: 7}
	full.LastUsed = start.Truncate(time.Minute)
	revoked, _ := token.New("revoked", "main", token.Read, start.Add(time.Minute), time.Time{})
	for _, tok := range []token.Token{plain, full, revoked} {
		if err := s.AddToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
	}
	revoked.Revoked = start.Add(time.Hour)
	if err := s.RevokeToken(t.Context(), "revoked", revoked.Revoked); err != nil {
		t.Fatal(err)
	}
	return []token.Token{plain, full, revoked}
}

func TestCopy(t *testing.T) {
	for from, openSource := range engines {
		source := openSource(t)
		plants, tokens := fillVaried(t, source), addTokens(t, source)
		for to, openTarget := range engines {
			t.Run(from+" to "+to, func(t *testing.T) {
				target := openTarget(t)
				var done atomic.Int64
				report, err := Copy(t.Context(), source, target, &done)
				if err != nil || report.Created != plants || report.Tokens != 3 || len(report.Stores) != 33 ||
					report.Plants != plants || done.Load() != 2*plants {
					t.Fatalf("Copy() = %d plants, %d tokens, %d stores, %d done, %v, want %d, 3, 33",
						report.Created, report.Tokens, len(report.Stores), done.Load(), err, plants)
				}
				if got, err := target.Tokens(t.Context()); err != nil || !slices.Equal(got, tokens) {
					t.Errorf("Tokens() = %v, %v, want %v", got, err, tokens)
				}
				for i, text := range texts {
					if got, err := target.Get(t.Context(), "text", int64(i)); err != nil || got.Name != text || got.Tag != nil {
						t.Errorf("plant %d = %.50q, %v, want %.50q", i, got.Name, err, text)
					}
				}
				again, err := Copy(t.Context(), source, target, new(atomic.Int64))
				if err != nil || again.Created != 0 || !slices.Equal(again.Stores, report.Stores) {
					t.Errorf("Copy() again created %d plants, %v", again.Created, err)
				}
			})
		}
	}
}

// faulty is a database with 7 shards that calls functions before its own methods.
type faulty struct {
	storage.Storage
	onBatch func(batch []plant.Record) error
	onList  func(name string)
}

func (f *faulty) Shard(key plant.Key) (server, shard int) { return 0, int(uint64(key.ID) % 7) }

func (f *faulty) CreateBatch(ctx context.Context, batch []plant.Record) ([]plant.Outcome, error) {
	if f.onBatch != nil {
		if err := f.onBatch(batch); err != nil {
			return nil, err
		}
	}
	return f.Storage.CreateBatch(ctx, batch)
}

func (f *faulty) List(ctx context.Context, name string, after *int64, limit int) ([]plant.Plant, error) {
	if f.onList != nil {
		f.onList(name)
	}
	return f.Storage.List(ctx, name, after, limit)
}

// A copy that failed continues. Its batches are of one shard, and the engine knows that the plants are copies.
func TestContinue(t *testing.T) {
	source, target := engines["sqlite"](t), &faulty{Storage: engines["sqlite"](t)}
	const n = pageSize + 500
	fill(t, source, "main", n)
	addTokens(t, source)
	var batches atomic.Int64
	target.onBatch = func(batch []plant.Record) error {
		_, first := target.Shard(batch[0].Key())
		for i := range batch {
			if _, shard := target.Shard(batch[i].Key()); shard != first {
				t.Errorf("plants of the shards %d and %d in one batch", first, shard)
			}
			if batch[i].Event != "" {
				t.Errorf("plant %d has an event", batch[i].ID)
			}
		}
		if batches.Add(1) > 10 {
			return storage.ErrUnavailable
		}
		return nil
	}
	_, err := Copy(t.Context(), source, target, new(atomic.Int64))
	wantError(t, err, "write to the target: ", "run the same command again to continue")
	if !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("Copy() = %v, want ErrUnavailable", err)
	}
	if tokens, err := target.Tokens(t.Context()); err != nil || len(tokens) > 0 {
		t.Errorf("%d tokens, %v before the plants are there", len(tokens), err)
	}
	there, err := target.Count(t.Context(), "main")
	if err != nil || there == 0 || there == n {
		t.Fatalf("%d plants were copied, %v", there, err)
	}
	target.onBatch = nil
	report, err := Copy(t.Context(), source, target, new(atomic.Int64))
	if err != nil || report.Created != n-there || report.Stores[0].Plants != n {
		t.Errorf("Copy() again created %d plants, %v, want %d", report.Created, err, n-there)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error = %v, want it to contain %q", err, part)
		}
	}
}

// Writes to the source during the copy are detected at the end, and no token is copied.
func TestSourceChanges(t *testing.T) {
	for name, change := range map[string]func(s storage.Storage) error{
		"created": func(s storage.Storage) error {
			_, err := s.CreateBatch(t.Context(), []plant.Record{storagetest.Record("a", -1, "late", "-")})
			return err
		},
		"replaced": func(s storage.Storage) error {
			return storagetest.Replace(t.Context(), s, "a", 5, plant.Content{Name: "late"}, nil)
		},
		"removed": func(s storage.Storage) error { return storagetest.Remove(t.Context(), s, "a", 5, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			source, target := &faulty{Storage: engines["sqlite"](t)}, engines["sqlite"](t)
			fill(t, source, "a", 100)
			fill(t, source, "b", 100)
			addTokens(t, source)
			source.onList = func(name string) {
				if name == "b" { // the first store has been copied
					source.onList = nil
					if err := change(source.Storage); err != nil {
						t.Error(err)
					}
				}
			}
			_, err := Copy(t.Context(), source, target, new(atomic.Int64))
			wantError(t, err, "store a differs: ", "stop everything that writes to either database")
			if tokens, _ := target.Tokens(t.Context()); len(tokens) > 0 {
				t.Errorf("%d tokens were copied although the plants differ", len(tokens))
			}
		})
	}
}

// A target that is neither empty nor an earlier copy is refused before anything is written.
func TestOtherTarget(t *testing.T) {
	with := func(name string, id int64) func(*testing.T, storage.Storage) {
		return func(t *testing.T, s storage.Storage) {
			storagetest.Create(t, s, storagetest.Record(name, id, "x", "-"))
		}
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, target storage.Storage)
		want    string
	}{
		"another plant": {with("main", 5000),
			"the target has a plant 5000 in store main that the source does not have; copy to an empty database"},
		"a different plant": {with("main", 7),
			"the target has a plant 7 in store main that the source does not have; copy to an empty database"},
		"another store": {with("other", 1),
			"the target has plants in store other, and the source has none; copy to an empty database"},
		"another token": {func(t *testing.T, s storage.Storage) { addTokens(t, s) },
			"token plain of the target is not the token of that name in the source; copy to an empty database"},
		"one more token": {func(t *testing.T, s storage.Storage) {
			more, _ := token.New("more", "main", token.Read, start, time.Time{})
			if err := s.AddToken(t.Context(), more); err != nil {
				t.Fatal(err)
			}
		}, "token more of the target is valid, and the source does not have it; revoke it, or copy to an empty database"},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := engines["sqlite"](t), engines["sqlite"](t)
			fill(t, source, "main", 10)
			addTokens(t, source)
			test.prepare(t, target)
			before, _ := target.Count(t.Context(), "main")
			_, err := Copy(t.Context(), source, target, new(atomic.Int64))
			wantError(t, err, test.want)
			if after, err := target.Count(t.Context(), "main"); after != before || err != nil {
				t.Errorf("%d plants were written, %v", after-before, err)
			}
		})
	}
	source, target := engines["sqlite"](t), engines["sqlite"](t)
	fill(t, source, "main", 2*samples)
	fill(t, target, "main", samples)
	storagetest.Create(t, target, storagetest.Record("main", samples, "x", "-")) // beyond the plants that are looked up
	_, err := Copy(t.Context(), source, target, new(atomic.Int64))
	wantError(t, err, "the target has a plant 100 in store main that the source does not have")
}

// A token that was revoked in the source after a copy is revoked by the next one, and never made valid again. One that
// was revoked and then removed does not stay valid in the target.
func TestRevokedTokens(t *testing.T) {
	source, target := engines["sqlite"](t), engines["sqlite"](t)
	addTokens(t, source)
	copyAll := func() error { _, err := Copy(t.Context(), source, target, new(atomic.Int64)); return err }
	revoke := func(s storage.Storage, name string, at time.Time) {
		t.Helper()
		if err := s.RevokeToken(t.Context(), name, at); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := copyAll(); err != nil {
			t.Fatal(err)
		}
		revoke(source, "plain", start.Add(time.Hour))
	}
	want, _ := source.Tokens(t.Context())
	if got, err := target.Tokens(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("Tokens() = %v, %v, want %v", got, err, want)
	}
	late, _ := token.New("late", "main", token.Read, start.Add(2*time.Hour), time.Time{})
	if err := errors.Join(source.AddToken(t.Context(), late), copyAll()); err != nil {
		t.Fatal(err)
	}
	revoke(source, "late", start)
	if n, err := source.PruneTokens(t.Context(), "", start.Add(time.Minute)); n != 1 || err != nil {
		t.Fatalf("%d tokens were pruned, %v", n, err)
	}
	wantError(t, copyAll(), "token late of the target is valid, and the source does not have it")
	revoke(target, "late", start)
	if err := copyAll(); err != nil {
		t.Errorf("Copy() after the token was revoked = %v", err)
	}
	revoke(target, "full", start)
	wantError(t, copyAll(), "token full of the target is not the token of that name in the source")
}

// Sandboxes are neither copied nor a reason to refuse a target.
func TestSandboxesStay(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			source, target := open(t), open(t)
			storagetest.Create(t, source, storagetest.Record("main", 1, "Fern", "-"),
				storagetest.Record("sandbox:a", 1, "Fern", "-"))
			storagetest.Create(t, target, storagetest.Record("sandbox:b", 1, "Fern", "-"))
			report, err := Copy(t.Context(), source, target, new(atomic.Int64))
			if err != nil || report.Plants != 1 || len(report.Stores) != 1 {
				t.Errorf("Copy() = %+v, %v, want one plant in one store", report, err)
			}
			if got, err := target.Stores(t.Context()); err != nil || !slices.Equal(got, []string{"main", "sandbox:b"}) {
				t.Errorf("the target has the stores %q, %v", got, err)
			}
		})
	}
}
