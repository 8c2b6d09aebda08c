package token_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

// exceed sends unknown and mistyped credentials until one is refused for that, and returns how many were not.
func exceed(t *testing.T, a *token.Authenticator, address from) int {
	t.Helper()
	for n := range 1000 {
		credential, want := token.Generate(), token.ErrInvalid
		if n%2 == 0 {
			credential, want = "mistyped", token.ErrMistyped
		}
		_, err := a.Authenticate(t.Context(), bearer(credential), address)
		if errors.Is(err, token.ErrFailures) {
			return n
		}
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	t.Fatalf("1000 wrong credentials from %s were not limited", address)
	panic("unreachable")
}

// Beyond the limit of an address, wrong credentials are refused without a lookup. Cached tokens from the same
// address, even stale ones, are not affected, nor are other addresses.
func TestFailuresAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, header := newLookup()
		fixed := token.Token{Name: "fixed", Hash: token.HashOf("a-fixed-credential")}
		a := token.NewAuthenticator(l, nil, &fixed)
		if _, err := a.Authenticate(t.Context(), header, here); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := exceed(t, a, here); n < 100 || n > 101 {
			t.Errorf("%d failures were looked up at once, want 100", n)
		}
		before := l.asked.Load()
		_, err := a.Authenticate(t.Context(), bearer(token.Generate()), here)
		e, ok := errors.AsType[*rate.Exceeded](err)
		if asked := l.asked.Load() - before; !ok || e.Wait <= 0 || e.Wait > 100*time.Millisecond || asked != 0 {
			t.Errorf("one more: %v after %d lookups, want a wait of at most 100 ms and no lookup", err, asked)
		}
		mistyped := []string{header[0][:40]}
		for _, test := range []struct { // they take no time, during which the limit would recover
			name    string
			headers []string
			from    from
			err     error
		}{
			{"mistyped", mistyped, here, token.ErrFailures},
			{"mistyped, from the IPv4-mapped address", mistyped, "::ffff:192.0.2.1", token.ErrFailures},
			{"known", header, here, nil},
			{"fixed", bearer("a-fixed-credential"), here, nil},
			{"wrong, from another address", bearer(token.Generate()), "192.0.2.2", token.ErrInvalid},
			{"mistyped, from another address", mistyped, "192.0.2.2", token.ErrMistyped},
			{"no credential", nil, here, token.ErrMissing},
		} {
			if _, err := a.Authenticate(t.Context(), test.headers, test.from); !errors.Is(err, test.err) {
				t.Errorf("%s: %v, want %v", test.name, err, test.err)
			}
		}
		time.Sleep(5 * time.Second)
		before = l.asked.Load()
		var requests sync.WaitGroup
		for range 60 { // those that wait for a lookup when the limit is reached do not keep others from theirs
			requests.Go(func() {
				_, err := a.Authenticate(t.Context(), bearer(token.Generate()), here)
				if !errors.Is(err, token.ErrInvalid) && !errors.Is(err, token.ErrFailures) {
					t.Errorf("one of 60 requests after five seconds: %v", err)
				}
			})
		}
		requests.Wait()
		if n := l.asked.Load() - before; n < 50 || n > 52 {
			t.Errorf("%d of 60 wrong credentials were looked up after five seconds, want 50", n)
		}

		exceed(t, a, "2001:db8:1:2::1")
		for address, want := range map[from]error{
			"2001:db8:1:2:ffff::9": token.ErrFailures, "2001:db8:1:3::1": token.ErrMistyped,
		} {
			if _, err := a.Authenticate(t.Context(), mistyped, address); !errors.Is(err, want) {
				t.Errorf("mistyped from %s: %v, want %v", address, err, want)
			}
		}
	})
}

// Few lookups wait, from one address and from all. The others are refused at once.
func TestWaitingLookupsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := token.NewAuthenticator(&lookup{takes: 10 * time.Millisecond}, nil, nil)
		var waited atomic.Int64
		refused := func(from from) bool {
			start := time.Now()
			_, err := a.Authenticate(t.Context(), bearer(token.Generate()), from)
			if errors.Is(err, token.ErrInvalid) {
				waited.Add(1)
			} else if !errors.Is(err, token.ErrLookups) || time.Since(start) > 0 {
				t.Errorf("from %s: %v after %v", from, err, time.Since(start))
			}
			return errors.Is(err, token.ErrLookups)
		}
		for n := range 200 {
			go refused(from(fmt.Sprintf("203.0.113.%d", n/4)))
		}
		synctest.Wait()
		if !refused("192.0.2.99") {
			t.Error("not refused with 128 others waiting")
		}
		time.Sleep(time.Minute)
		if n := waited.Swap(0); n != 128 {
			t.Errorf("%d of 200 lookups waited, want 128", n)
		}
		for range 80 {
			go refused(here)
		}
		time.Sleep(time.Minute)
		if n := waited.Load(); n != 64 {
			t.Errorf("%d of 80 lookups from one address waited, want 64", n)
		}
	})
}

// Requests with one credential share its lookup, so a busy client is not refused after a restart.
func TestWaitingRequestsShareLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, header := newLookup()
		l.takes = 10 * time.Millisecond
		a := token.NewAuthenticator(l, nil, nil)
		for range 10 {
			go a.Authenticate(t.Context(), bearer(token.Generate()), here)
		}
		synctest.Wait()
		var accepted atomic.Int64
		for range 200 {
			go func() {
				if _, err := a.Authenticate(t.Context(), header, here); err == nil {
					accepted.Add(1)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		if n := accepted.Load(); n != 200 {
			t.Errorf("%d of 200 requests with a valid token are accepted", n)
		}
	})
}

// slowForWrong is a database that takes a second for unknown hashes and counts how many it looks up at once.
type slowForWrong struct {
	token       token.Token
	now, atOnce atomic.Int32
}

func (s *slowForWrong) TokenByHash(_ context.Context, hash token.Hash) (token.Token, error) {
	if hash == s.token.Hash {
		return s.token, nil
	}
	n := s.now.Add(1)
	defer s.now.Add(-1)
	s.atOnce.Store(max(s.atOnce.Load(), n))
	time.Sleep(time.Second)
	return token.Token{}, token.ErrUnknown
}

// From however many addresses unknown credentials come, two are looked up at once, and a request waits at most
// five seconds for that. Known tokens do not wait for them.
func TestFewUnknownTokensAreLookedUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowForWrong{}
		var credential string
		s.token, credential = token.New("known", "main", token.Create, time.Now(), time.Time{})
		a := token.NewAuthenticator(s, nil, nil)
		if _, err := a.Authenticate(t.Context(), bearer(credential), here); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		var invalid, late atomic.Int32
		for i := range byte(20) {
			address := from(netip.AddrFrom4([4]byte{10, 0, 0, i}).String())
			go func() {
				switch _, err := a.Authenticate(t.Context(), bearer(token.Generate()), address); {
				case errors.Is(err, token.ErrInvalid):
					invalid.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					late.Add(1)
				}
			}()
		}
		synctest.Wait()
		start := time.Now()
		if _, err := a.Authenticate(t.Context(), bearer(credential), here); err != nil || time.Since(start) > 0 {
			t.Errorf("the known token after %v: %v", time.Since(start), err)
		}
		time.Sleep(time.Minute)
		if n := s.atOnce.Load(); n != 2 {
			t.Errorf("%d unknown credentials were looked up at once, want 2", n)
		}
		// In five seconds five pairs end. At the fifth second one more pair may start before the wait of the rest ends.
		if i, l := invalid.Load(), late.Load(); i < 10 || i > 12 || i+l != 20 {
			t.Errorf("%d were invalid and %d late, want about 10 each", i, l)
		}
	})
}
