package token_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/token"
)

// verifier accepts one JWT.
type verifier struct {
	jwt      string
	token    token.Token
	err      error // for every other
	verified atomic.Int32
}

func (v *verifier) Verify(jwt string) (token.Token, error) {
	v.verified.Add(1)
	if jwt == v.jwt {
		return v.token, nil
	}
	return token.Token{}, v.err
}

const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"

func newVerifier() *verifier {
	return &verifier{jwt: jwt, token: token.Token{Name: "oidc:alice"}, err: &token.Rejected{Reason: "forged"}}
}

func TestJWTs(t *testing.T) {
	l, header := newLookup()
	fixed := token.Token{Name: "fixed", Hash: token.HashOf("eyJ.fixed.token")}
	a := token.NewAuthenticator(l, nil, &fixed)
	if _, err := a.Authenticate(t.Context(), bearer(jwt), here); !errors.Is(err, token.ErrMistyped) {
		t.Errorf("a JWT without an identity provider: %v, want %v", err, token.ErrMistyped)
	}
	a = token.NewAuthenticator(l, newVerifier(), &fixed)
	for _, test := range []struct {
		header []string
		name   string
		err    error
	}{
		{bearer(jwt), "oidc:alice", nil},
		{header, "known", nil},
		{bearer("eyJ.fixed.token"), "fixed", nil},
		{bearer("eyJ.e30.x"), "", token.ErrRejected},
		{bearer("eyJ.e30"), "", token.ErrMistyped},
		{bearer("eyJ.e30.x.y"), "", token.ErrMistyped},
		{bearer("eyJ." + strings.Repeat("x", 8<<10-6) + ".x"), "", token.ErrRejected}, // the longest that is verified
		{bearer("eyJ." + strings.Repeat("x", 8<<10-5) + ".x"), "", token.ErrMistyped},
	} {
		got, err := a.Authenticate(t.Context(), test.header, here)
		if !errors.Is(err, test.err) || err == nil && got.Name != test.name {
			t.Errorf("%.50s: %v, %v, want %q, %v", test.header, got, err, test.name, test.err)
		}
	}
	if n := l.asked.Load(); n != 1 {
		t.Errorf("%d lookups, want one, of the token that is in the database", n)
	}
}

// A JWT is verified once a second, and is refused when it expires.
func TestJWTsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLookup()
		v := newVerifier()
		v.token.Expires = time.Now().Add(3 * time.Second)
		a := token.NewAuthenticator(l, v, nil)
		for range 100 {
			if _, err := a.Authenticate(t.Context(), bearer(jwt), here); err != nil {
				t.Fatal(err)
			}
		}
		if n := v.verified.Load(); n != 1 {
			t.Errorf("%d verifications, want 1", n)
		}
		time.Sleep(3 * time.Second)
		for range 1000 { // and it does not count as a failure
			if _, err := a.Authenticate(t.Context(), bearer(jwt), here); !errors.Is(err, token.ErrExpired) {
				t.Fatalf("after the expiry: %v", err)
			}
		}
	})
}

// Rejected JWTs count against the limit of their address like unknown tokens. Those whose key is missing do not.
func TestRejectedJWTsAreLimited(t *testing.T) {
	for _, test := range []struct {
		err     error
		limited bool
	}{{&token.Rejected{Reason: "forged"}, true}, {token.ErrKeys, false}} {
		synctest.Test(t, func(t *testing.T) {
			l, header := newLookup()
			v := newVerifier()
			v.err = test.err
			a := token.NewAuthenticator(l, v, nil)
			if _, err := a.Authenticate(t.Context(), header, here); err != nil {
				t.Fatal(err)
			}
			limited := false
			for i := range 150 {
				_, err := a.Authenticate(t.Context(), bearer(fmt.Sprintf("eyJ.e30.x%d", i)), here)
				limited = limited || errors.Is(err, token.ErrFailures)
				if !errors.Is(err, token.ErrFailures) && !errors.Is(err, test.err) {
					t.Fatalf("Authenticate() = %v", err)
				}
			}
			if n := v.verified.Load(); limited != test.limited || limited && n != 100 {
				t.Errorf("%v: limited: %v after %d verifications, want %v", test.err, limited, n, test.limited)
			}
			if _, err := a.Authenticate(t.Context(), header, here); err != nil {
				t.Errorf("a known token of the address: %v", err)
			}
		})
	}
}

// A JWT that is rejected after it was accepted, because its key was removed, is unknown from then on. While keys are
// missing it stays known.
func TestJWTIsRejectedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLookup()
		v := newVerifier()
		a := token.NewAuthenticator(l, v, nil)
		if _, err := a.Authenticate(t.Context(), bearer(jwt), here); err != nil {
			t.Fatal(err)
		}
		v.jwt = ""
		for _, v.err = range []error{token.ErrKeys, &token.Rejected{Reason: "retired"}} {
			time.Sleep(2 * time.Second)
			if _, err := a.Authenticate(t.Context(), bearer(jwt), here); !errors.Is(err, v.err) {
				t.Errorf("Authenticate() = %v, want %v", err, v.err)
			}
		}
	})
}
