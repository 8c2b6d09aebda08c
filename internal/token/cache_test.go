package token_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/token"
)

// newCached returns an Authenticator that has just looked up the token of header.
func newCached(t *testing.T) (a *token.Authenticator, l *lookup, header []string) {
	t.Helper()
	l, header = newLookup()
	a = token.NewAuthenticator(l, nil, nil)
	if _, err := a.Authenticate(t.Context(), header, here); err != nil {
		t.Fatal(err)
	}
	return a, l, header
}

func TestOneLookupASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, header := newLookup()
		a := token.NewAuthenticator(l, nil, nil)
		for range 50 {
			go a.Authenticate(t.Context(), header, here)
		}
		synctest.Wait()
		started := time.Now()
		for _, test := range []struct {
			after   time.Duration
			lookups int32
		}{{2 * time.Millisecond, 1}, {time.Second, 1}, {time.Second + 1, 2}, {2*time.Second + 1, 2}} {
			time.Sleep(time.Until(started.Add(test.after)))
			if _, err := a.Authenticate(t.Context(), header, here); err != nil {
				t.Fatal(err)
			}
			if n := l.asked.Load(); n != test.lookups {
				t.Errorf("%d lookups after %v, want %d", n, test.after, test.lookups)
			}
		}
	})
}

// A request that comes two seconds after a revocation is not authenticated by a lookup that started before it.
func TestRevocationWithSlowLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l, header := newCached(t)
		time.Sleep(2 * time.Second)
		l.takes = 4 * time.Second
		var waiting sync.WaitGroup
		ask := func(want error) {
			waiting.Go(func() {
				if _, err := a.Authenticate(t.Context(), header, here); !errors.Is(err, want) {
					t.Errorf("Authenticate() = %v, want %v", err, want)
				}
			})
		}
		ask(nil)
		time.Sleep(500 * time.Millisecond)
		ask(nil) // shares the lookup of the first
		synctest.Wait()
		l.token.Revoked = time.Now()
		time.Sleep(1999 * time.Millisecond)
		for range 10 {
			ask(token.ErrRevoked)
		}
		waiting.Wait()
		if n := l.asked.Load(); n != 3 {
			t.Errorf("%d lookups, want the first, one before the revocation and one for the ten after it", n)
		}
	})
}

// While the database fails a cached token stays known, so the limits for unknown ones never apply to it. A
// token that the database no longer has becomes unknown.
func TestKnownTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l, header := newCached(t)
		down := errors.New("down")
		for err, known := range map[error]bool{down: true, token.ErrUnknown: false} {
			time.Sleep(2 * time.Minute)
			l.err = err
			limited := false
			for range 200 { // more than the burst of failures
				_, err := a.Authenticate(t.Context(), header, here)
				limited = limited || errors.Is(err, token.ErrFailures)
			}
			if limited == known {
				t.Errorf("after %q from the database: limited = %v, want %v", err, limited, !known)
			}
			l.err = nil
			time.Sleep(2 * time.Minute)
			if _, err := a.Authenticate(t.Context(), header, here); err != nil {
				t.Errorf("after the token is back: %v", err)
			}
		}
	})
}

// A lookup that times out is neither a yes nor a no, and the next request looks up again.
func TestLookupTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, header := newLookup()
		l.takes = time.Hour
		a := token.NewAuthenticator(l, nil, nil)
		start := time.Now()
		_, err := a.Authenticate(t.Context(), header, here)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("Authenticate() = %v after %v, want %v after 5 s", err, time.Since(start), context.DeadlineExceeded)
		}
		l.takes = 0
		if _, err := a.Authenticate(t.Context(), header, here); err != nil {
			t.Errorf("Authenticate() after the database is back = %v", err)
		}
	})
}

// A request whose context ends stops waiting, unless the token is cached, and does not end a shared lookup.
func TestRequestEndsDuringALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l, header := newCached(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			if _, err := a.Authenticate(ended, header, here); err != nil {
				t.Fatalf("a cached token: %v", err)
			}
		}

		time.Sleep(2 * time.Second)
		l.takes = 800 * time.Millisecond
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		go a.Authenticate(short, header, here)
		synctest.Wait()
		start := time.Now()
		_, err := a.Authenticate(short, header, here)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 100*time.Millisecond {
			t.Errorf("a request that ended: %v after %v", err, time.Since(start))
		}
		_, err = a.Authenticate(t.Context(), header, here)
		if err != nil || time.Since(start) != 800*time.Millisecond || l.asked.Load() != 2 {
			t.Errorf("another request: %v after %v and %d lookups", err, time.Since(start), l.asked.Load())
		}
	})
}

// A panic of a lookup fails the requests that wait for it, and nothing else.
func TestLookupPanics(t *testing.T) {
	l, header := newLookup()
	a := token.NewAuthenticator(l, nil, nil)
	for _, l.panic = range []bool{true, false} {
		if _, err := a.Authenticate(t.Context(), header, here); (err != nil) != l.panic {
			t.Errorf("Authenticate() = %v with a lookup that panics: %v", err, l.panic)
		}
	}
}

// everything is a database that has a token for every hash.
type everything struct{ asked int }

func (e *everything) TokenByHash(context.Context, token.Hash) (token.Token, error) {
	e.asked++
	return token.Token{}, nil
}

func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands still
		const most = 10_000
		e := &everything{}
		a := token.NewAuthenticator(e, nil, nil)
		headers := make([][]string, most)
		for i := range headers {
			headers[i] = bearer(token.Generate())
		}
		use := func(headers ...[]string) (lookups int) {
			t.Helper()
			before := e.asked
			for _, h := range headers {
				if _, err := a.Authenticate(t.Context(), h, here); err != nil {
					t.Fatal(err)
				}
			}
			return e.asked - before
		}
		use(headers...)
		if n := use(headers...); n != 0 {
			t.Errorf("%d lookups of %d tokens again, want none", n, most)
		}
		use(bearer(token.Generate()))
		if n := use(headers...); n == 0 {
			t.Errorf("no lookup of %d tokens after another, want one dropped", most)
		}
	})
}
