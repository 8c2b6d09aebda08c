package storetest

import (
	"slices"
	"testing"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

func testTokens(t *testing.T, open Open) {
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
	wantError(t, "AddToken of a name that exists", s.AddToken(ctx, again), token.ErrNameTaken)
	all, err = s.Tokens(ctx)
	if err != nil || !slices.Equal(all, []token.Token{first, second}) {
		t.Errorf("Tokens() = %v, %v, want %v", all, err, []token.Token{first, second})
	}
	got, err := s.TokenByHash(ctx, second.Hash)
	if err != nil || got != second {
		t.Errorf("TokenByHash() = %v, %v, want %v", got, err, second)
	}
	_, err = s.TokenByHash(ctx, token.HashOf("unknown"))
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
	wantError(t, "RevokeToken of no token", s.RevokeToken(ctx, "unknown", at), token.ErrUnknown)
}

// testTokenOrder adds tokens whose order by time, by name and by addition differ.
func testTokenOrder(t *testing.T, open Open) {
	s := opened(t, open)
	start := time.UnixMilli(1_700_000_000_000).UTC()
	want := []string{"c", "a", "b", "B0"}
	for _, i := range []int{2, 0, 3, 1} {
		created := start.Add(time.Duration(i+1) / 2 * time.Millisecond) // the two in the middle at once
		tok, _ := token.New(want[i], "main", token.Read, created, created)
		if err := s.AddToken(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RevokeToken(t.Context(), "a", start); err != nil {
		t.Fatal(err)
	}
	all, err := s.Tokens(t.Context())
	var got []string
	for _, tok := range all {
		got = append(got, tok.Name)
		if revoked := !tok.Revoked.IsZero(); revoked != (tok.Name == "a") {
			t.Errorf("token %s is revoked: %v", tok.Name, revoked)
		}
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Tokens() = %v, %v, want %v", got, err, want)
	}
}

func testRevocation(t *testing.T, open Open) {
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
