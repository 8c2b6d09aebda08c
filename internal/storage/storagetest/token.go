package storagetest

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

func testTokens(t *testing.T, open Open) {
	s, there := opened(t, open), opened(t, open)
	ctx := t.Context()
	start := time.UnixMilli(1_700_000_000_123).UTC()
	all, err := s.Tokens(ctx)
	if err != nil || len(all) != 0 {
		t.Fatalf("Tokens() of a new database = %v, %v", all, err)
	}
	first, _ := token.New("first", "main", token.AllScopes, start, time.Time{})
	second, _ := token.New("second", "other", token.Create, start.Add(time.Second), start.Add(time.Hour))
	second.Rate = rate.Limit{Count: 100, Per: time.Minute, Burst: 7}
	second.LastUsed = start.Add(time.Hour)
	addTokens(t, s, second, first)
	again, _ := token.New("first", "main", token.Read, start, time.Time{})
	wantError(t, "AddToken of a name that exists", s.AddToken(ctx, again), token.ErrNameTaken)
	wantTokens(t, "of another process", there, first, second)
	got, err := s.TokenByHash(ctx, second.Hash)
	if err != nil || got != second {
		t.Errorf("TokenByHash() = %v, %v, want %v", got, err, second)
	}
	_, err = s.TokenByHash(ctx, token.HashOf("unknown"))
	wantError(t, "TokenByHash of no token", err, token.ErrUnknown)

	at := start.Add(time.Minute)
	if err := there.RevokeToken(ctx, "first", at); err != nil {
		t.Error(err)
	}
	if err := s.RevokeToken(ctx, "first", at.Add(time.Minute)); err != nil {
		t.Errorf("RevokeToken() again = %v", err)
	}
	if got, err := s.TokenByHash(ctx, first.Hash); err != nil || !got.Revoked.Equal(at) {
		t.Errorf("a revoked token = %v, %v, want it revoked at %v", got, err, at)
	}
	wantError(t, "RevokeToken of no token", s.RevokeToken(ctx, "unknown", at), token.ErrUnknown)
}

// testTokenOrder adds tokens whose order by time, by name and by addition differ.
func testTokenOrder(t *testing.T, open Open) {
	s := opened(t, open)
	start := time.UnixMilli(1_700_000_000_000).UTC()
	var all [4]token.Token
	for i, name := range []string{"c", "a", "b", "B0"} {
		created := start.Add(time.Duration(i+1) / 2 * time.Millisecond) // the two in the middle at once
		all[i], _ = token.New(name, "main", token.Read, created, created)
	}
	addTokens(t, s, all[2], all[0], all[3], all[1])
	wantTokens(t, "added in another order", s, all[:]...)
}

func addTokens(t *testing.T, s storage.Storage, tokens ...token.Token) {
	t.Helper()
	for _, tok := range tokens {
		if err := s.AddToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
	}
}

func wantTokens(t *testing.T, what string, s storage.Storage, want ...token.Token) {
	t.Helper()
	if got, err := s.Tokens(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: Tokens() = %v, %v, want %v", what, got, err, want)
	}
}

func testChangeToken(t *testing.T, open Open) {
	s, start := opened(t, open), time.UnixMilli(1_700_000_000_000).UTC()
	was, _ := token.New("a", "main", token.AllScopes, start, time.Time{})
	was.LastUsed = start
	other, _ := token.New("b", "main", token.Read, start.Add(time.Second), start.Add(time.Hour))
	addTokens(t, s, was, other)
	to := was
	to.Scopes, to.Expires, to.Rate = token.Read, start.Add(time.Hour), rate.Limit{Count: 5, Per: time.Second, Burst: 9}
	stale := was
	stale.LastUsed = time.Time{} // a use between reading and changing a token is no conflict
	if err := s.ChangeToken(t.Context(), stale, to, nil); err != nil {
		t.Fatal(err)
	}
	wantTokens(t, "after a change", s, to, other)
	wantError(t, "a change of a token that has changed", s.ChangeToken(t.Context(), was, was, nil), token.ErrChanged)
	for _, limit := range []rate.Limit{
		{}, {Count: 6, Per: time.Second, Burst: 9}, {Count: 5, Per: time.Second, Burst: 8},
	} {
		stale = to
		stale.Rate = limit
		err := s.ChangeToken(t.Context(), stale, was, nil)
		wantError(t, "a change of a token that had another rate", err, token.ErrChanged)
	}
	wantTokens(t, "after changes that failed", s, to, other)
	renamed := to
	renamed.Name = "b"
	wantError(t, "a name that exists", s.ChangeToken(t.Context(), to, renamed, nil), token.ErrNameTaken)
	back := to
	back.Expires, back.Rate = time.Time{}, rate.Limit{}
	if err := s.ChangeToken(t.Context(), to, back, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeToken(t.Context(), "a", start); err != nil {
		t.Fatal(err)
	}
	wantError(t, "a change of a revoked token", s.ChangeToken(t.Context(), back, to, nil), token.ErrChanged)
	back.Revoked = start
	wantTokens(t, "after a revocation", s, back, other)
}

func testRotation(t *testing.T, open Open) {
	s, start := opened(t, open), time.UnixMilli(1_700_000_000_000).UTC()
	was, _ := token.New("a", "main", token.AllScopes, start, time.Time{})
	other, _ := token.New("b", "main", token.Read, start.Add(time.Second), time.Time{})
	addTokens(t, s, was, other)
	old := was
	old.Name, old.Expires = "a.old", start.Add(time.Hour)
	next, _ := token.New("a", "main", token.AllScopes, start.Add(time.Minute), start.Add(48*time.Hour))
	next.Rate = rate.Limit{Count: 100, Per: time.Minute, Burst: 7}

	taken, takenHash := next, next
	taken.Name, takenHash.Hash = "b", other.Hash
	for _, add := range []*token.Token{&taken, &takenHash} {
		err := s.ChangeToken(t.Context(), was, old, add)
		wantError(t, "a rotation to a name or hash that exists", err, token.ErrNameTaken)
		wantTokens(t, "after a rotation that failed", s, was, other)
	}
	if err := s.ChangeToken(t.Context(), was, old, &next); err != nil {
		t.Fatal(err)
	}
	wantTokens(t, "after a rotation", s, old, other, next)
	second, _ := token.New("a", "main", token.AllScopes, start, time.Time{})
	wantError(t, "a second rotation at once", s.ChangeToken(t.Context(), was, old, &second), token.ErrChanged)
	wantTokens(t, "after a second rotation", s, old, other, next)
}

// The latest use is kept, whichever process records it and in whatever order.
func testUses(t *testing.T, open Open) {
	here, there := opened(t, open), opened(t, open)
	start := time.UnixMilli(1_700_000_040_000).UTC() // a whole minute
	a, _ := token.New("a", "main", token.Read, start, time.Time{})
	b, _ := token.New("b", "main", token.Read, start.Add(time.Second), time.Time{})
	addTokens(t, here, a, b)
	record := func(s storage.Storage, uses ...token.Use) {
		t.Helper()
		if err := s.RecordUses(t.Context(), uses); err != nil {
			t.Fatal(err)
		}
	}
	record(here, token.Use{Hash: a.Hash, At: start.Add(2 * time.Minute)}, token.Use{Hash: b.Hash, At: start},
		token.Use{Hash: token.HashOf("removed"), At: start})
	record(there, token.Use{Hash: a.Hash, At: start.Add(time.Minute)},
		token.Use{Hash: b.Hash, At: start.Add(3 * time.Minute)})
	record(there)
	a.LastUsed, b.LastUsed = start.Add(2*time.Minute), start.Add(3*time.Minute)
	wantTokens(t, "after uses in two processes", here, a, b)

	many := make([]token.Use, 500)
	for i := range many {
		many[i] = token.Use{Hash: token.HashOf(strconv.Itoa(i)), At: start}
	}
	var together sync.WaitGroup
	for i, s := range []storage.Storage{here, there, here, there} {
		together.Go(func() {
			uses := slices.Concat([]token.Use{{Hash: b.Hash, At: start.Add(4 * time.Minute)}}, many,
				[]token.Use{{Hash: a.Hash, At: start.Add(4 * time.Minute)}})
			if i%2 == 1 {
				slices.Reverse(uses)
			}
			if err := s.RecordUses(t.Context(), uses); err != nil {
				t.Errorf("RecordUses() at once = %v", err)
			}
		})
	}
	together.Wait()
	a.LastUsed, b.LastUsed = start.Add(4*time.Minute), start.Add(4*time.Minute)
	wantTokens(t, "after uses at once", there, a, b)
}

// testPruneTokens removes tokens by the earlier of their ends, and issues their names again.
func testPruneTokens(t *testing.T, open Open) {
	s, start := opened(t, open), time.UnixMilli(1_700_000_000_000).UTC()
	add := func(name, store string, expires, revoked time.Duration) token.Token {
		tok, _ := token.New(name, store, token.Read, start, time.Time{})
		if expires > 0 {
			tok.Expires = start.Add(expires)
		}
		addTokens(t, s, tok)
		if revoked > 0 {
			tok.Revoked = start.Add(revoked)
			if err := s.RevokeToken(t.Context(), name, tok.Revoked); err != nil {
				t.Fatal(err)
			}
		}
		return tok
	}
	const early, late = time.Hour, 2 * time.Hour
	valid := add("a", "main", 0, 0)
	add("b", "main", early, 0)
	add("c", "main", 0, early)
	add("d", "main", late, early)
	add("e", "other", early, 0)
	expiresLate, revokedLate := add("f", "main", late, 0), add("g", "other", 0, late)
	for _, test := range []struct {
		store  string
		before time.Duration
		want   int
	}{{"", early, 0}, {"other", late, 1}, {"none", late, 0}, {"", late, 3}, {"", late, 0}} {
		n, err := s.PruneTokens(t.Context(), test.store, start.Add(test.before))
		if n != test.want || err != nil {
			t.Errorf("PruneTokens(%q, %v) = %d, %v, want %d", test.store, test.before, n, err, test.want)
		}
	}
	wantTokens(t, "after pruning", s, valid, expiresLate, revokedLate)
	wantTokens(t, "after issuing a name again", s, valid, add("b", "main", 0, 0), expiresLate, revokedLate)
}
