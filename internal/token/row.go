package token

import (
	"cmp"
	"fmt"
	"time"

	"plantstore/internal/rate"
)

// Row is a token in the form that a database keeps: one field for each column, nil for NULL.
type Row struct {
	Name    string
	Hash    []byte
	Store   string
	Scopes  string // names, separated by spaces
	Tail    string
	Created int64  // milliseconds since 1970, like LastUsed, Expires and Revoked
	Expires *int64 // nil: never
	Revoked *int64 // nil: not revoked
	Rate    *string
	Burst   *int64

	LastUsed *int64 // nil: never
}

// Row returns the token in the form that a database keeps. Times are cut to the millisecond.
func (t Token) Row() Row {
	return Row{
		Name: t.Name, Hash: t.Hash[:], Store: t.Store, Scopes: t.Scopes.String(), Tail: t.Tail,
		Created: t.Created.UnixMilli(), Expires: Millis(t.Expires), Revoked: Millis(t.Revoked),
		Rate: orNull(t.Rate.String()), Burst: orNull(t.Rate.Burst), LastUsed: Millis(t.LastUsed),
	}
}

// Token returns the token of a row, or an error if its rate is invalid.
func (r Row) Token() (Token, error) {
	t := Token{
		Name: r.Name, Store: r.Store, Scopes: StoredScopes(r.Scopes), Tail: r.Tail,
		Created: time.UnixMilli(r.Created).UTC(), Expires: FromMillis(r.Expires), Revoked: FromMillis(r.Revoked),
		LastUsed: FromMillis(r.LastUsed),
	}
	copy(t.Hash[:], r.Hash)
	var err error
	if t.Rate, err = rate.Parse(*cmp.Or(r.Rate, new(string)), *cmp.Or(r.Burst, new(int64))); err != nil {
		return Token{}, fmt.Errorf("token %s: its stored rate: %w", r.Name, err)
	}
	return t, nil
}

func Millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
}

func FromMillis(n *int64) time.Time {
	if n == nil {
		return time.Time{}
	}
	return time.UnixMilli(*n).UTC()
}

func orNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
