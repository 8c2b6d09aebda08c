// Package storetest proves that an engine keeps the promises of the store port. Every engine runs it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/store"
	"plantstore/internal/token"
)

// Open opens the database of one test. Called again with the same test it opens the same database
// once more, as a second process would.
type Open func(t *testing.T) store.Store

// Run runs the whole suite.
func Run(t *testing.T, open Open) {
	tests := []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"create tells created, same and taken apart", outcomes},
		{"one that is taken does not fail its neighbours", neighbours},
		{"a key twice in a batch is decided in order", twice},
		{"every int64 is an id", ids},
		{"text comes back character for character", text},
		{"batches of every size", sizes},
		{"stores do not see each other", apart},
		{"close then open loses nothing", reopen},
		{"racing creates have one winner", race},
		{"list walks in order", list},
		{"list is stable under creates", stable},
		{"list of large plants ends early", listLarge},
		{"replace", replace},
		{"remove", remove},
		{"racing editors have one winner", editors},
		{"tokens", tokens},
		{"a revocation is seen by another opener", revocation},
		{"a batch outlives its context", context_},
		{"check", check},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.test(t, open) })
	}
}

// Record makes a record for tests; a tag of "-" means none.
func Record(store string, id int64, name, tag string) plant.Record {
	r := plant.Record{Store: store, New: plant.New{ID: id, Plant: plant.Plant{Name: name}}}
	if tag != "-" {
		r.Tag = &tag
	}
	return r
}

func opened(t *testing.T, open Open) store.Store {
	t.Helper()
	s := open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return s
}

func create(t *testing.T, s store.Store, records ...plant.Record) []plant.Outcome {
	t.Helper()
	out, err := s.CreateBatch(t.Context(), records)
	if err != nil {
		t.Fatalf("CreateBatch(%d plants) = %v", len(records), err)
	}
	if len(out) != len(records) {
		t.Fatalf("CreateBatch(%d plants) gave %d outcomes", len(records), len(out))
	}
	return out
}

func wantOutcomes(t *testing.T, got []plant.Outcome, want ...plant.Outcome) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("outcomes = %v, want %v", got, want)
	}
}

func wantStored(t *testing.T, s store.Store, want plant.Record) {
	t.Helper()
	got, err := s.Get(t.Context(), want.Store, want.ID)
	if err != nil {
		t.Errorf("Get(%s, %d) = %v", want.Store, want.ID, err)
		return
	}
	if got.ID != want.ID || !got.Equal(want.Plant) {
		t.Errorf("Get(%s, %d) = %s, want %s", want.Store, want.ID, show(got), show(want.New))
	}
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func show(p plant.New) string {
	if p.Tag == nil {
		return fmt.Sprintf("{%d %q no tag}", p.ID, p.Name)
	}
	return fmt.Sprintf("{%d %q %q}", p.ID, p.Name, *p.Tag)
}

func outcomes(t *testing.T, open Open) {
	s := opened(t, open)
	wantOutcomes(t, create(t, s, Record("main", 1, "Fern", "shade")), plant.Created)
	wantOutcomes(t, create(t, s, Record("main", 1, "Fern", "shade")), plant.Same)
	wantOutcomes(t, create(t, s, Record("main", 1, "fern", "shade")), plant.Taken)
	wantOutcomes(t, create(t, s, Record("main", 1, "Fern", "sun")), plant.Taken)
	wantOutcomes(t, create(t, s, Record("main", 1, "Fern", "-")), plant.Taken)
	wantStored(t, s, Record("main", 1, "Fern", "shade"))

	wantOutcomes(t, create(t, s, Record("main", 2, "Fern", "-")), plant.Created)
	wantOutcomes(t, create(t, s, Record("main", 2, "Fern", "-")), plant.Same)
	wantOutcomes(t, create(t, s, Record("main", 2, "Fern", "")), plant.Taken)
	wantStored(t, s, Record("main", 2, "Fern", "-"))

	wantOutcomes(t, create(t, s, Record("main", 3, "Fern", "")), plant.Created)
	wantOutcomes(t, create(t, s, Record("main", 3, "Fern", "-")), plant.Taken)
	wantStored(t, s, Record("main", 3, "Fern", ""))
	wantOutcomes(t, create(t, s))
}

func neighbours(t *testing.T, open Open) {
	s := opened(t, open)
	create(t, s, Record("main", 5, "Ivy", "-"))
	wantOutcomes(t, create(t, s,
		Record("main", 4, "Moss", "-"), Record("main", 5, "Oak", "-"), Record("main", 6, "Elm", "-"), Record("main", 5, "Ivy", "-")),
		plant.Created, plant.Taken, plant.Created, plant.Same)
	wantStored(t, s, Record("main", 4, "Moss", "-"))
	wantStored(t, s, Record("main", 5, "Ivy", "-"))
	wantStored(t, s, Record("main", 6, "Elm", "-"))
}

func twice(t *testing.T, open Open) {
	s := opened(t, open)
	wantOutcomes(t, create(t, s,
		Record("main", 9, "Rose", "-"), Record("main", 8, "Lily", "x"), Record("main", 9, "Rose", "-"),
		Record("main", 9, "Thorn", "-"), Record("other", 9, "Thorn", "-"), Record("main", 8, "Lily", "-")),
		plant.Created, plant.Created, plant.Same, plant.Taken, plant.Created, plant.Taken)
	wantStored(t, s, Record("main", 9, "Rose", "-"))
	wantStored(t, s, Record("main", 8, "Lily", "x"))
	wantStored(t, s, Record("other", 9, "Thorn", "-"))
	// A key that is stored already and stands twice.
	wantOutcomes(t, create(t, s, Record("main", 9, "Thorn", "-"), Record("main", 9, "Rose", "-"), Record("main", 9, "Thorn", "-")),
		plant.Taken, plant.Same, plant.Taken)
}

func ids(t *testing.T, open Open) {
	s := opened(t, open)
	all := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 53, -1, 0, 1, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, id := range all {
		wantOutcomes(t, create(t, s, Record("main", id, fmt.Sprint(id), "-")), plant.Created)
	}
	page, err := s.List(t.Context(), "main", nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, p := range page {
		got = append(got, p.ID)
		if p.Name != fmt.Sprint(p.ID) {
			t.Errorf("plant %d has the name %q", p.ID, p.Name)
		}
	}
	if !slices.Equal(got, all) {
		t.Errorf("List() has the ids %v, want %v", got, all)
	}
}

func text(t *testing.T, open Open) {
	s := opened(t, open)
	names := []string{
		"", " ", "  two ends  ", "\t\r\n\v\f", "\x01\x1f\x7f", `quote " ' back\slash`, "emoji 🌵👩‍🌾", "e\u0301 is not \u00e9", "\u00e9",
		"\ufeffBOM", "\ufffe\uffff", "\U0010ffff", "\u202eright to left", "'; DROP TABLE plants; --", "%s $1 ? :x", "NULL", "\\x00", "\\N", "{a,b}",
		strings.Repeat("long ", 13_000), "ß", "ﬁ", "İ",
	}
	for i, name := range names {
		want := Record("main", int64(i), name, name)
		wantOutcomes(t, create(t, s, want), plant.Created)
		wantStored(t, s, want)
		wantOutcomes(t, create(t, s, want), plant.Same)
		wantOutcomes(t, create(t, s, Record("main", int64(i), name+" ", name)), plant.Taken)
	}
}

func sizes(t *testing.T, open Open) {
	s := opened(t, open)
	var id int64
	for _, size := range []int{1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 100, 512, 1000} {
		batch := make([]plant.Record, size)
		want := make([]plant.Outcome, size)
		for i := range batch {
			id++
			batch[i], want[i] = Record("main", id, fmt.Sprint(id), fmt.Sprint(-id)), plant.Created
		}
		wantOutcomes(t, create(t, s, batch...), want...)
		wantStored(t, s, batch[0])
		wantStored(t, s, batch[size-1])
		batch[size/2].Name = "another"
		for i := range want {
			want[i] = plant.Same
		}
		want[size/2] = plant.Taken
		wantOutcomes(t, create(t, s, batch...), want...)
	}
	if n, err := s.Count(t.Context(), "main"); err != nil || n != id {
		t.Errorf("Count() = %d, %v, want %d", n, err, id)
	}
}

func apart(t *testing.T, open Open) {
	s := opened(t, open)
	wantOutcomes(t, create(t, s, Record("a", 1, "A", "-"), Record("b", 1, "B", "-")), plant.Created, plant.Created)
	wantStored(t, s, Record("a", 1, "A", "-"))
	wantStored(t, s, Record("b", 1, "B", "-"))
	_, err := s.Get(t.Context(), "c", 1)
	wantError(t, "Get of another store", err, plant.ErrNotFound)
	if err := s.Remove(t.Context(), "a", 1, nil); err != nil {
		t.Error(err)
	}
	wantStored(t, s, Record("b", 1, "B", "-"))
	wantError(t, "Replace in another store", s.Replace(t.Context(), "a", 1, plant.Plant{}, nil), plant.ErrNotFound)
	for store, want := range map[string]int64{"a": 0, "b": 1, "c": 0} {
		page, err := s.List(t.Context(), store, nil, 10)
		if err != nil || int64(len(page)) != want {
			t.Errorf("List(%s) = %d plants, %v, want %d", store, len(page), err, want)
		}
		if n, err := s.Count(t.Context(), store); err != nil || n != want {
			t.Errorf("Count(%s) = %d, %v, want %d", store, n, err, want)
		}
	}
}

func reopen(t *testing.T, open Open) {
	s := open(t)
	create(t, s, Record("main", 1, "Fern", "shade"))
	tok, _ := token.New("kept", "main", token.AllScopes, time.Now(), time.Time{})
	if err := s.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	if _, err := s.CreateBatch(t.Context(), []plant.Record{Record("main", 2, "x", "-")}); err == nil {
		t.Error("CreateBatch after Close() = nil, want an error")
	}
	s = opened(t, open)
	wantStored(t, s, Record("main", 1, "Fern", "shade"))
	if _, err := s.TokenByHash(t.Context(), tok.Hash); err != nil {
		t.Errorf("TokenByHash() after reopening = %v", err)
	}
}

// race lets two openers create the same ids with different names, in batches of different order.
func race(t *testing.T, open Open) {
	openers := []store.Store{opened(t, open), opened(t, open)}
	const clients, n = 8, 200
	won := make([][]plant.Outcome, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			won[c] = make([]plant.Outcome, n)
			order := rand.Perm(n)
			for len(order) > 0 {
				size := min(len(order), 1+rand.IntN(9))
				var batch []plant.Record
				for _, id := range order[:size] {
					batch = append(batch, Record("main", int64(id), fmt.Sprint("client ", c), "-"))
				}
				out, err := openers[c%2].CreateBatch(context.Background(), batch)
				// Who waits for too long on a slow machine is refused, and has stored nothing.
				for deadline := time.Now().Add(time.Minute); errors.Is(err, store.ErrUnavailable) && time.Now().Before(deadline); {
					out, err = openers[c%2].CreateBatch(context.Background(), batch)
				}
				if err != nil {
					t.Errorf("CreateBatch() = %v", err)
					return
				}
				for i, id := range order[:size] {
					won[c][id] = out[i]
				}
				order = order[size:]
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for id := range n {
		p, err := openers[0].Get(t.Context(), "main", int64(id))
		if err != nil {
			t.Fatal(err)
		}
		for c := range clients {
			want := plant.Taken
			if p.Name == fmt.Sprint("client ", c) {
				want = plant.Created
			}
			if won[c][id] != want {
				t.Errorf("plant %d is %q, and client %d was told %v", id, p.Name, c, won[c][id])
			}
		}
	}
}

func list(t *testing.T, open Open) {
	s := opened(t, open)
	want := []int64{math.MinInt64, -7, 0, 3, 4, 90, math.MaxInt64}
	for _, i := range rand.Perm(len(want)) {
		create(t, s, Record("main", want[i], "n", "-"), Record("other", want[i]/2+1, "n", "-"))
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []int64
		var after *int64
		for {
			page, err := s.List(t.Context(), "main", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > limit {
				t.Fatalf("List(limit=%d) = %d plants", limit, len(page))
			}
			if len(page) == 0 {
				break
			}
			for _, p := range page {
				got = append(got, p.ID)
			}
			after = &got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", limit, got, want)
		}
	}
	between := int64(5)
	if page, err := s.List(t.Context(), "main", &between, 1); err != nil || len(page) != 1 || page[0].ID != 90 {
		t.Errorf("List(after=5, limit=1) = %v, %v, want plant 90", page, err)
	}
}

// listLarge walks plants of all sizes, in turn below and above what an engine may find large. Every list ends with
// the plant that fills it, and no earlier.
func listLarge(t *testing.T, open Open) {
	s := opened(t, open)
	const kib = 1 << 10
	sizes := []struct{ name, tag int }{ // a tag of -1 means none
		{10, -1}, {300 * kib, -1}, {300 * kib, 0}, {1, 300 * kib}, {200 * kib, 200 * kib}, {1 << 20, 5}, {256 * kib, -1}, {256*kib - 1, -1}, {1, -1}, {1, 0},
		{65536, -1}, {65536, 0}, {65537, -1}, {1, 65536}, {1, 65535}, {32769, 32768}, {60_000, 3}, {60_000, -1}, {100_000, 7}, {100_000, -1},
		{3, 100_000}, {10, 10}, {10, -1}, {2 << 20, -1}, {2, 2},
	}
	var all []plant.Record
	for i, size := range sizes {
		r := Record("main", int64(i)*3-20, strings.Repeat(string(rune('a'+i)), size.name), "-")
		if size.tag >= 0 {
			tag := strings.Repeat("t", size.tag)
			r.Tag = &tag
		}
		all = append(all, r)
		create(t, s, r, Record("other", r.ID+1, "n", "-"))
	}
	for _, limit := range []int{1, 2, 3, 5, len(all), 1000} {
		rest := all
		var after *int64
		for {
			page, err := s.List(t.Context(), "main", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			want, size := 0, 0
			for want < min(limit, len(rest)) && size < store.PageBytes {
				size += rest[want].Size()
				want++
			}
			if len(page) != want {
				t.Fatalf("List(limit=%d) before plant %d has %d plants, want %d of %d bytes", limit, rest[0].ID, len(page), want, size)
			}
			if len(page) == 0 {
				break
			}
			for i, p := range page {
				if p.ID != rest[i].ID || !p.Equal(rest[i].Plant) {
					t.Fatalf("List(limit=%d) = %.100s at %d, want %.100s", limit, show(p), i, show(rest[i].New))
				}
			}
			rest = rest[want:]
			after = &page[want-1].ID
		}
	}
}

func stable(t *testing.T, open Open) {
	s := opened(t, open)
	var before []plant.Record
	for id := range int64(300) {
		before = append(before, Record("main", id*1000, "old", "-"))
	}
	create(t, s, before...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := s.CreateBatch(context.Background(), []plant.Record{Record("main", rand.Int64N(300_000), "new", "-")}); err != nil {
					t.Errorf("CreateBatch() = %v", err)
					return
				}
			}
		}
	})
	seen := map[int64]int{}
	last := int64(-1)
	for {
		page, err := s.List(t.Context(), "main", &last, 7)
		if err != nil {
			t.Error(err)
		}
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			if p.ID <= last {
				t.Errorf("plant %d after plant %d", p.ID, last)
			}
			last = p.ID
			if p.Name == "old" {
				seen[p.ID]++
			}
		}
	}
	close(stop)
	wg.Wait()
	for _, r := range before {
		if seen[r.ID] != 1 {
			t.Errorf("plant %d was met %d times, want once", r.ID, seen[r.ID])
		}
	}
}

func replace(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := t.Context()
	create(t, s, Record("main", 1, "Fern", "shade"))
	to := Record("main", 1, "Ivy", "-").Plant
	for range 2 { // idempotent
		if err := s.Replace(ctx, "main", 1, to, nil); err != nil {
			t.Fatal(err)
		}
		wantStored(t, s, Record("main", 1, "Ivy", "-"))
	}
	old := Record("main", 1, "Fern", "shade").Plant
	wantError(t, "Replace with a stale plant", s.Replace(ctx, "main", 1, old, &old), plant.ErrChanged)
	emptyTag := Record("main", 1, "Ivy", "").Plant
	wantError(t, "Replace where only the tag's absence differs", s.Replace(ctx, "main", 1, old, &emptyTag), plant.ErrChanged)
	wantStored(t, s, Record("main", 1, "Ivy", "-"))
	if err := s.Replace(ctx, "main", 1, old, &to); err != nil {
		t.Error(err)
	}
	wantStored(t, s, Record("main", 1, "Fern", "shade"))
	wantError(t, "Replace of an absent plant", s.Replace(ctx, "main", 2, to, nil), plant.ErrNotFound)
	wantError(t, "Replace of an absent plant that was seen", s.Replace(ctx, "main", 2, to, &to), plant.ErrNotFound)
	// What a create is compared with is what is stored now.
	wantOutcomes(t, create(t, s, Record("main", 1, "Ivy", "-"), Record("main", 1, "Fern", "shade")), plant.Taken, plant.Same)
}

func remove(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := t.Context()
	create(t, s, Record("main", 1, "Fern", "shade"), Record("main", 2, "Ivy", "-"))
	stale := Record("main", 1, "Fern", "-").Plant
	wantError(t, "Remove with a stale plant", s.Remove(ctx, "main", 1, &stale), plant.ErrChanged)
	wantStored(t, s, Record("main", 1, "Fern", "shade"))
	seen := Record("main", 1, "Fern", "shade").Plant
	if err := s.Remove(ctx, "main", 1, &seen); err != nil {
		t.Error(err)
	}
	_, err := s.Get(ctx, "main", 1)
	wantError(t, "Get of a removed plant", err, plant.ErrNotFound)
	wantError(t, "Remove of a removed plant", s.Remove(ctx, "main", 1, nil), plant.ErrNotFound)
	wantStored(t, s, Record("main", 2, "Ivy", "-"))
	wantOutcomes(t, create(t, s, Record("main", 1, "Oak", "-")), plant.Created)
	if err := s.Remove(ctx, "main", 2, nil); err != nil {
		t.Error(err)
	}
}

// editors all saw the same plant; one replaces it and every other is told that it changed.
func editors(t *testing.T, open Open) {
	openers := []store.Store{opened(t, open), opened(t, open)}
	seen := Record("main", 1, "seen", "-")
	create(t, openers[0], seen)
	const n = 8
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = openers[i%2].Replace(context.Background(), "main", 1, plant.Plant{Name: fmt.Sprint(i)}, &seen.Plant)
		})
	}
	wg.Wait()
	p, err := openers[0].Get(t.Context(), "main", 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range errs {
		if p.Name == fmt.Sprint(i) {
			wantError(t, "the winner's Replace", err, nil)
		} else {
			wantError(t, "a loser's Replace", err, plant.ErrChanged)
		}
	}
}

func tokens(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := t.Context()
	start := time.UnixMilli(1_700_000_000_123).UTC()
	all, err := s.Tokens(ctx)
	if err != nil || len(all) != 0 {
		t.Fatalf("Tokens() of a new database = %v, %v", all, err)
	}
	first, _ := token.New("first", "main", token.AllScopes, start, time.Time{})
	second, _ := token.New("second", "other", token.Create, start.Add(time.Second), start.Add(time.Hour))
	second.Rate = rate.Limit{Count: 100, Per: time.Minute, Burst: 7}
	for _, tok := range []token.Token{second, first} {
		if err := s.AddToken(ctx, tok); err != nil {
			t.Fatal(err)
		}
	}
	again, _ := token.New("first", "main", token.Read, start, time.Time{})
	wantError(t, "AddToken of a name that is there", s.AddToken(ctx, again), token.ErrNameTaken)
	all, err = s.Tokens(ctx)
	if err != nil || !slices.Equal(all, []token.Token{first, second}) {
		t.Errorf("Tokens() = %v, %v, want %v", all, err, []token.Token{first, second})
	}
	got, err := s.TokenByHash(ctx, second.Hash)
	if err != nil || got != second {
		t.Errorf("TokenByHash() = %v, %v, want %v", got, err, second)
	}
	_, err = s.TokenByHash(ctx, token.HashOf("nobody"))
	wantError(t, "TokenByHash of no token", err, token.ErrUnknown)

	at := start.Add(time.Minute)
	if err := s.RevokeToken(ctx, "first", at); err != nil {
		t.Error(err)
	}
	if err := s.RevokeToken(ctx, "first", at.Add(time.Minute)); err != nil {
		t.Errorf("RevokeToken() again = %v", err)
	}
	if got, err := s.TokenByHash(ctx, first.Hash); err != nil || !got.Revoked.Equal(at) {
		t.Errorf("a revoked token = %v, %v, want it revoked at %v", got, err, at)
	}
	wantError(t, "RevokeToken of no token", s.RevokeToken(ctx, "nobody", at), token.ErrUnknown)
}

func revocation(t *testing.T, open Open) {
	here, there := opened(t, open), opened(t, open)
	tok, _ := token.New("shared", "main", token.AllScopes, time.Now(), time.Time{})
	if err := here.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if got, err := there.TokenByHash(t.Context(), tok.Hash); err != nil || !got.Revoked.IsZero() {
		t.Fatalf("the other opener's TokenByHash() = %v, %v", got, err)
	}
	if err := there.RevokeToken(t.Context(), "shared", time.Now()); err != nil {
		t.Fatal(err)
	}
	if got, err := here.TokenByHash(t.Context(), tok.Hash); err != nil || got.Revoked.IsZero() {
		t.Errorf("TokenByHash() after the other opener revoked it = %v, %v", got, err)
	}
}

func context_(t *testing.T, open Open) {
	s := opened(t, open)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, err := s.CreateBatch(ctx, []plant.Record{Record("main", 1, "Fern", "-")})
	if err != nil {
		t.Fatalf("CreateBatch() with an ended context = %v", err)
	}
	wantOutcomes(t, out, plant.Created)
	wantStored(t, s, Record("main", 1, "Fern", "-"))
}

func check(t *testing.T, open Open) {
	s := open(t)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check() = %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("Check() of a closed store = nil")
	}
}
