package token_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/token"
)

// from is a client's address.
type from string

func (f from) Address() netip.Addr { return netip.MustParseAddr(string(f)) }

const here = from("192.0.2.1")

func bearer(credential string) []string { return []string{"Bearer " + credential} }

// lookup is a database with one token that counts lookups.
type lookup struct {
	token token.Token
	err   error
	takes time.Duration // a millisecond if 0
	panic bool          // after it has taken so long
	asked atomic.Int32
}

func (l *lookup) TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error) {
	l.asked.Add(1)
	found, err := l.token, l.err
	select {
	case <-time.After(max(l.takes, time.Millisecond)):
	case <-ctx.Done():
		return token.Token{}, ctx.Err()
	}
	switch {
	case l.panic:
		panic("broken")
	case err != nil:
		return token.Token{}, err
	case hash != found.Hash:
		return token.Token{}, token.ErrUnknown
	}
	return found, nil
}

// newLookup returns a database with one token that never expires, and the Authorization headers of that token.
func newLookup() (*lookup, []string) {
	known, credential := token.New("known", "main", token.Create, time.Now(), time.Time{})
	return &lookup{token: known}, bearer(credential)
}

func TestAuthenticate(t *testing.T) {
	l, header := newLookup()
	credential := strings.TrimPrefix(header[0], "Bearer ")
	fixed := token.Token{Name: "fixed", Hash: token.HashOf("a-fixed-credential")}
	a := token.NewAuthenticator(l, nil, &fixed)
	typo := credential[:len(credential)-1] + "!"
	for _, test := range []struct {
		headers []string
		want    string
		err     error
	}{
		{nil, "", token.ErrMissing},
		{header, "known", nil},
		{[]string{"bEARER   " + credential + " "}, "known", nil},
		{[]string{"Bearer a-fixed-credential"}, "fixed", nil},
		{[]string{"Bearer " + credential, "Bearer " + credential}, "", token.ErrMalformed},
		{[]string{""}, "", token.ErrMalformed},
		{[]string{"Bearer"}, "", token.ErrMalformed},
		{[]string{"Bearer "}, "", token.ErrMalformed},
		{[]string{"Bearer ="}, "", token.ErrMalformed},
		{[]string{"Basic " + credential}, "", token.ErrMalformed},
		{[]string{credential}, "", token.ErrMalformed},
		{[]string{"Bearer " + credential + ", Bearer x"}, "", token.ErrMalformed},
		{[]string{"Bearer " + typo}, "", token.ErrMalformed},
		{[]string{"Bearer " + credential[:20]}, "", token.ErrMistyped},
		{[]string{"Bearer " + strings.Repeat("x", 64<<10)}, "", token.ErrMistyped},
		{[]string{"Bearer " + token.Generate()}, "", token.ErrInvalid},
	} {
		got, err := a.Authenticate(t.Context(), test.headers, here)
		if !errors.Is(err, test.err) || err == nil && got.Name != test.want {
			t.Errorf("Authenticate(%.60q) = %v, %v, want %q, %v", test.headers, got, err, test.want, test.err)
		}
	}
	if n := l.asked.Load(); n != 2 {
		t.Errorf("%d lookups, want those of the known and of the unknown token", n)
	}
}

// A token is valid until the instant at which it expires or is revoked.
func TestExpiryAndRevocation(t *testing.T) {
	for _, test := range []struct {
		name    string
		expires time.Duration // from the lookup on, which takes a millisecond; 0 for never
		revoked bool
		want    error
	}{
		{"never expires", 0, false, nil},
		{"expires a nanosecond later", time.Millisecond + 1, false, nil},
		{"expires now", time.Millisecond, false, token.ErrExpired},
		{"expired a nanosecond ago", time.Millisecond - 1, false, token.ErrExpired},
		{"revoked", 0, true, token.ErrRevoked},
		{"revoked and expired", time.Millisecond - 1, true, token.ErrRevoked},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			l, header := newLookup()
			if test.expires != 0 {
				l.token.Expires = now.Add(test.expires)
			}
			if test.revoked {
				l.token.Revoked = now.Add(-time.Hour)
			}
			a := token.NewAuthenticator(l, nil, nil)
			if _, err := a.Authenticate(t.Context(), header, here); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", test.name, err, test.want)
			}
		})
	}
}
