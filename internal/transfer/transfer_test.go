package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/store"
	"plantstore/internal/store/storetest"
	"plantstore/internal/token"
	"plantstore/internal/transfer"
)

func create(t testing.TB, s store.Store, records ...plant.Record) {
	t.Helper()
	outcomes, err := s.CreateBatch(t.Context(), records)
	if err != nil || slices.ContainsFunc(outcomes, func(o plant.Outcome) bool { return o != plant.Created }) {
		t.Fatalf("CreateBatch() = %v, %v", outcomes, err)
	}
}

// texts are easily changed by a conversion: every character that is allowed, and what programs interpret.
func texts() (all []string) {
	all = []string{
		"", " ", "\t\r\n\v\f", "\x01\x1f\x7f", `quote " ' back\slash`, "e\u0301 is not \u00e9", "\ufeffBOM",
		"'; DROP TABLE plants; --", "%s $1 ? :x", "NULL", `\x00`, `\N`, `\.`, "{a,b}", "1e400", "ß", "İ",
		strings.Repeat("60 KB ", 10_000), strings.Repeat("🌵", 30_000),
	}
	var b strings.Builder
	for r := rune(1); r <= 0x10ffff; r++ {
		if r < 0xd800 || r > 0xdfff {
			b.WriteRune(r)
		}
		if r%0x2000 == 0 || r == 0x10ffff {
			all = append(all, b.String())
			b.Reset()
		}
	}
	return all
}

// fillVaried creates stores of all kinds and returns the number of plants.
func fillVaried(t testing.TB, s store.Store) (plants int64) {
	t.Helper()
	var all []plant.Record
	for i, text := range texts() {
		all = append(all, storetest.Record("text", int64(i), text, "-"), storetest.Record("text", -int64(i)-1, "x", text))
	}
	for _, id := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64} {
		all = append(all, storetest.Record("ids", id, "n", ""))
	}
	for i := range 300 {
		all = append(all, storetest.Record(fmt.Sprintf("store-%d", i), int64(i), "n", "-"))
	}
	for batch := range slices.Chunk(all, 100) {
		create(t, s, batch...)
	}
	fill(t, s, "main", 20_000)
	return int64(len(all)) + 20_000
}

var start = time.UnixMilli(1_700_000_000_123).UTC()

// addTokens adds tokens with everything that a token can have.
func addTokens(t testing.TB, s store.Store) []token.Token {
	t.Helper()
	plain, _ := token.New("plain", "main", token.AllScopes, start, time.Time{})
	full, _ := token.New("full", "other", token.Create, start.Add(time.Second), start.Add(time.Hour))
	full.Rate = rate.Limit{Count: 100, Per: time.Minute, Burst: 7}
	full.LastUsed = start.Truncate(time.Minute)
	revoked, _ := token.New("revoked", "main", token.Read, start.Add(time.Minute), time.Time{})
	for _, tok := range []token.Token{plain, full, revoked} {
		addToken(t, s, tok)
	}
	revoked.Revoked = start.Add(time.Hour)
	if err := s.RevokeToken(t.Context(), "revoked", revoked.Revoked); err != nil {
		t.Fatal(err)
	}
	return []token.Token{plain, full, revoked}
}

func addToken(t testing.TB, s store.Store, tok token.Token) {
	t.Helper()
	if err := s.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
}

func TestCopy(t *testing.T) {
	for from, openSource := range engines {
		source := openSource(t)
		plants, tokens := fillVaried(t, source), addTokens(t, source)
		for to, openTarget := range engines {
			t.Run(from+" to "+to, func(t *testing.T) {
				target := openTarget(t)
				report, err := transfer.Copy(t.Context(), source, target, transfer.Options{})
				if err != nil || report.Created != plants || report.Tokens != 3 || len(report.Stores) != 303 {
					t.Fatalf("Copy() = %d plants, %d tokens, %d stores, %v, want %d, 3, 303",
						report.Created, report.Tokens, len(report.Stores), err, plants)
				}
				if got, err := target.Tokens(t.Context()); err != nil || !slices.Equal(got, tokens) {
					t.Errorf("Tokens() = %v, %v, want %v", got, err, tokens)
				}
				for i, text := range texts() {
					if got, err := target.Get(t.Context(), "text", int64(i)); err != nil || got.Name != text || got.Tag != nil {
						t.Errorf("plant %d = %.50q, %v, want %.50q", i, got.Name, err, text)
					}
				}
				again, err := transfer.Copy(t.Context(), source, target, transfer.Options{})
				if err != nil || again.Created != 0 || !slices.Equal(again.Stores, report.Stores) {
					t.Errorf("Copy() again created %d plants, %v", again.Created, err)
				}
				checked, err := transfer.Check(t.Context(), target, source, transfer.Options{})
				if err != nil || !slices.Equal(checked.Stores, report.Stores) {
					t.Errorf("Check() = %v", err)
				}
			})
		}
	}
}

// sharded is a target with 7 shards on 3 servers. It counts the batches of each shard.
type sharded struct {
	store.Store
	mu      sync.Mutex
	batches map[int]int
}

func (s *sharded) Shard(key plant.Key) (server, shard int) {
	shard = int(uint64(key.ID) % 7)
	return shard % 3, shard
}

func (s *sharded) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, first := s.Shard(plants[0].Key())
	for i := range plants {
		if _, shard := s.Shard(plants[i].Key()); shard != first {
			return nil, fmt.Errorf("plants of the shards %d and %d in one batch", first, shard)
		}
	}
	s.batches[first]++
	return s.Store.CreateBatch(ctx, plants)
}

// Every batch has plants of one shard, and many of them.
func TestShards(t *testing.T) {
	source := engines["sqlite"](t)
	fill(t, source, "main", 50_000)
	target := &sharded{Store: engines["sqlite"](t), batches: map[int]int{}}
	if _, err := transfer.Copy(t.Context(), source, target, transfer.Options{}); err != nil {
		t.Fatal(err)
	}
	for shard := range 7 {
		if got := target.batches[shard]; got < 1 || got > 10 {
			t.Errorf("shard %d got %d batches, want a few", shard, got)
		}
	}
}

// The hash is documented, so it must not change.
func TestHash(t *testing.T) {
	source, target := engines["sqlite"](t), engines["sqlite"](t)
	create(t, source, storetest.Record("main", 1, "Fern", "shade"), storetest.Record("main", -2, "é", ""),
		storetest.Record("other", 1, "Fern", "-"))
	report, err := transfer.Copy(t.Context(), source, target, transfer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"46f48852ef97d5a4ba5dc03ecff4e75016c07d9dc8979c4fbd96d10f3914418c",
		"ace8cd988c6d69d272f962ba27c44fc7be4f9dbfaa5daacb555205deac65f5ab",
	} {
		if got := report.Stores[i]; got.Hash.String() != want || got.Plants != int64(2-i) {
			t.Errorf("store %s: %d plants, hash %v, want %s", got.Name, got.Plants, got.Hash, want)
		}
	}
}

// hooked calls a function before each call of a method.
type hooked struct {
	store.Store
	onBatch func(n int) error
	onList  func(name string, n int)
	batches int
	lists   int
}

func (h *hooked) Lanes() int { return 1 }

func (h *hooked) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	h.batches++
	if h.onBatch != nil {
		if err := h.onBatch(h.batches); err != nil {
			return nil, err
		}
	}
	return h.Store.CreateBatch(ctx, plants)
}

func (h *hooked) List(ctx context.Context, name string, after *int64, limit int) ([]plant.New, error) {
	if h.lists++; h.onList != nil {
		h.onList(name, h.lists)
	}
	return h.Store.List(ctx, name, after, limit)
}

// A copy that failed in the middle continues: the plants that are there are not written again.
func TestContinue(t *testing.T) {
	const n = 50_000
	for to, openTarget := range engines {
		t.Run(to, func(t *testing.T) {
			source := engines["sqlite"](t)
			fill(t, source, "main", n)
			addTokens(t, source)
			target := &hooked{Store: openTarget(t)}
			target.onBatch = func(batch int) error {
				if batch == 5 {
					return store.ErrUnavailable
				}
				return nil
			}
			_, err := transfer.Copy(t.Context(), source, target, transfer.Options{})
			wantSentence(t, err, "write to the target: ", "run the same command again to continue")
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Copy() = %v, want ErrUnavailable", err)
			}
			if tokens, err := target.Tokens(t.Context()); err != nil || len(tokens) > 0 {
				t.Errorf("%d tokens, %v before the plants are there", len(tokens), err)
			}
			there, err := target.Count(t.Context(), "main")
			if err != nil || there == 0 || there == n {
				t.Fatalf("%d plants were copied, %v", there, err)
			}
			if err := storetest.Remove(t.Context(), target, "main", 17, nil); err != nil { // a gap
				t.Fatal(err)
			}
			target.onBatch = nil
			report, err := transfer.Copy(t.Context(), source, target, transfer.Options{})
			if err != nil || report.Created != n-there+1 || report.Stores[0].Plants != n {
				t.Errorf("Copy() again created %d plants, %v, want %d", report.Created, err, n-there+1)
			}
		})
	}
}

func wantSentence(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error = %v, want it to contain %q", err, part)
		}
	}
}

// Writes to the source during the copy are detected at the end, and the copy can be completed.
func TestSourceChanges(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s store.Store) error
		others transfer.Others // for the second run
		want   string
	}{
		"created": {func(s store.Store) error {
			_, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("a", -1, "late", "-")})
			return err
		}, transfer.Refuse, "store a differs: plant -1 is missing in the target (101 plants in the source, 100 in the"},
		"replaced": {func(s store.Store) error {
			return storetest.Replace(t.Context(), s, "a", 5, plant.Plant{Name: "late"}, nil)
		}, transfer.Overwrite, "store a differs: plant 5 has a different name or tag"},
		"removed": {func(s store.Store) error {
			return storetest.Remove(t.Context(), s, "a", 5, nil)
		}, transfer.Overwrite, "store a differs: plant 5 is not in the source"},
		"a new store": {func(s store.Store) error {
			_, err := s.CreateBatch(t.Context(), []plant.Record{storetest.Record("late", 1, "late", "-")})
			return err
		}, transfer.Refuse, "store late differs: plant 1 is missing in the target (1 plants in the source, 0 in the"},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := &hooked{Store: engines["sqlite"](t)}, engines["sqlite"](t)
			fill(t, source, "a", 100)
			fill(t, source, "b", 100)
			addTokens(t, source)
			source.onList = func(name string, _ int) {
				if name == "b" && source.onList != nil {
					source.onList = nil // the first store has been copied
					if err := test.change(source.Store); err != nil {
						t.Error(err)
					}
				}
			}
			_, err := transfer.Copy(t.Context(), source, target, transfer.Options{Others: transfer.Refuse})
			wantSentence(t, err, test.want, "stop everything that writes to either database, then run the same command again")
			if tokens, _ := target.Tokens(t.Context()); len(tokens) > 0 {
				t.Errorf("%d tokens were copied although the plants differ", len(tokens))
			}
			if _, err := transfer.Copy(t.Context(), source, target, transfer.Options{Others: test.others}); err != nil {
				t.Errorf("Copy() again = %v", err)
			}
			if _, err := transfer.Check(t.Context(), source, target, transfer.Options{}); err != nil {
				t.Errorf("Check() = %v", err)
			}
		})
	}
}

func TestOthers(t *testing.T) {
	only, differs := storetest.Record("main", 5000, "only here", "-"), storetest.Record("main", 7, "different", "-")
	foreign := storetest.Record("foreign", 1, "only here", "-")
	for _, test := range []struct {
		others   transfer.Others
		existing plant.Record
		want     string // of the error
	}{
		{transfer.Refuse, only, "the source has no plant 5000 in store main; copy to an empty database"},
		{transfer.Refuse, foreign, "the source has no plant 1 in store foreign; copy to an empty database"},
		{transfer.Refuse, differs, "plant 7 of store main has a different name or tag there; copy to an empty database"},
		{transfer.Keep, differs, "plant 7 of store main has a different name or tag there; copy to an empty database"},
		{transfer.Keep, only, ""},
		{transfer.Keep, foreign, ""},
		{transfer.Overwrite, only, ""},
		{transfer.Overwrite, foreign, ""},
		{transfer.Overwrite, differs, ""},
	} {
		t.Run(fmt.Sprint(test.others, test.existing.Name, test.existing.Store), func(t *testing.T) {
			source, target := engines["sqlite"](t), engines["sqlite"](t)
			fill(t, source, "main", 100)
			create(t, target, test.existing)
			options := transfer.Options{Others: test.others}
			report, err := transfer.Copy(t.Context(), source, target, options)
			if n, _ := target.Count(t.Context(), "main"); test.want != "" && n > 1 {
				t.Errorf("%d plants were written to a target that was refused", n)
			}
			if test.want != "" {
				wantSentence(t, err, test.want)
				return
			}
			if err != nil || report.Stores[0].Plants != 100 {
				t.Fatalf("Copy() = %v, %v", report, err)
			}
			if _, err := transfer.Check(t.Context(), source, target, options); err != nil {
				t.Errorf("Check() = %v", err)
			}
			_, err = target.Get(t.Context(), test.existing.Store, test.existing.ID)
			if kept := err == nil; kept != (test.others == transfer.Keep || test.existing == differs) {
				t.Errorf("with %s, Get of the other plant = %v", test.others, err)
			}
		})
	}
}

// A token of the target conflicts with one of the source.
func TestTokenConflicts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *token.Token)
		want   string
	}{
		"another credential": {func(t *token.Token) { t.Hash[0]++ }, "token plain of the target is not the token of"},
		"another name":       {func(t *token.Token) { t.Name = "x" }, "token plain of the source is named x in the target"},
		"another scope":      {func(t *token.Token) { t.Scopes = token.Read }, "token plain has another store, scopes"},
		"another expiry":     {func(t *token.Token) { t.Expires = start }, "token plain has another store, scopes"},
		"revoked":            {func(t *token.Token) { t.Revoked = start }, "token plain is revoked in the target"},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := engines["sqlite"](t), engines["sqlite"](t)
			fill(t, source, "main", 10)
			tok := addTokens(t, source)[0]
			test.change(&tok)
			addToken(t, target, tok)
			if !tok.Revoked.IsZero() {
				if err := target.RevokeToken(t.Context(), tok.Name, tok.Revoked); err != nil {
					t.Fatal(err)
				}
			}
			for _, others := range []transfer.Others{transfer.Refuse, transfer.Keep, transfer.Overwrite} {
				_, err := transfer.Copy(t.Context(), source, target, transfer.Options{Others: others})
				wantSentence(t, err, test.want)
			}
			if n, err := target.Count(t.Context(), "main"); n != 0 || err != nil {
				t.Errorf("%d plants were written, %v", n, err)
			}
		})
	}
}

// A copy that was interrupted between adding a token and revoking it revokes it.
func TestTokenIsRevokedLater(t *testing.T) {
	source, target := engines["sqlite"](t), engines["sqlite"](t)
	tokens := addTokens(t, source)
	other, _ := token.New("other", "main", token.Read, start.Add(-time.Hour), time.Time{})
	addToken(t, target, other)
	addToken(t, target, tokens[2])
	used := token.Use{Hash: tokens[2].Hash, At: start.Truncate(time.Minute)}
	if err := target.RecordUses(t.Context(), []token.Use{used}); err != nil { // which is no conflict
		t.Fatal(err)
	}
	tokens[2].LastUsed = used.At
	_, err := transfer.Check(t.Context(), source, target, transfer.Options{})
	wantSentence(t, err, "token plain is missing in the target")
	if _, err := transfer.Copy(t.Context(), source, target, transfer.Options{}); err != nil {
		t.Fatal(err)
	}
	if got, err := target.Tokens(t.Context()); err != nil || !slices.Equal(got, append([]token.Token{other}, tokens...)) {
		t.Errorf("Tokens() = %v, %v", got, err)
	}
}

// The end of the context ends the copy after the writes in flight.
func TestCancel(t *testing.T) {
	source, target := engines["sqlite"](t), &hooked{Store: engines["sqlite"](t)}
	fill(t, source, "main", 50_000)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the operator canceled the copy")
	target.onBatch = func(batch int) error {
		if batch == 3 {
			cancel(reason)
		}
		return nil
	}
	progress := new(transfer.Progress)
	_, err := transfer.Copy(ctx, source, target, transfer.Options{Progress: progress})
	if !errors.Is(err, reason) {
		t.Errorf("Copy() = %v, want %v", err, reason)
	}
	if n, err := target.Count(t.Context(), "main"); n < 3*4096 || n == 50_000 || err != nil {
		t.Errorf("%d plants were copied, %v", n, err)
	}
	if phase, done := progress.Now(); phase != (transfer.Phase{Name: "copying", Total: 50_000}) || done == 0 {
		t.Errorf("progress = %v, %d", phase, done)
	}
}
