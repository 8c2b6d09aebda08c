package token_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/token"
)

// uses is a database that has every token and keeps every use that is written to it, and a log. Tests hold the lock
// except while they sleep.
type uses struct {
	mu      sync.Mutex
	expires time.Duration // of every token
	last    time.Duration // since the last use of every token
	err     error
	writes  [][]token.Use
	log     strings.Builder
}

func (u *uses) TokenByHash(_ context.Context, hash token.Hash) (t token.Token, err error) {
	t = token.Token{Name: "x", Hash: hash}
	if u.expires != 0 {
		t.Expires = time.Now().Add(u.expires)
	}
	if u.last != 0 {
		t.LastUsed = time.Now().Add(-u.last)
	}
	return t, nil
}

func (u *uses) Tokens(ctx context.Context) ([]token.Token, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t, err := u.TokenByHash(ctx, token.Hash{})
	return []token.Token{t}, err
}

func (u *uses) RecordUses(ctx context.Context, written []token.Use) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.writes = append(u.writes, slices.Clone(written))
	return u.err
}

func (u *uses) Write(line []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.log.Write(line)
}

func (u *uses) sleep(d time.Duration) {
	u.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	u.mu.Lock()
}

// recording runs an Authenticator in a bubble, in which the test starts a second after it.
func recording(t *testing.T, u *uses, test func(t *testing.T, a *token.Authenticator, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := token.NewAuthenticator(u, nil, nil)
		var running sync.WaitGroup
		running.Go(func() { a.RecordUses(ctx, u, slog.New(slog.NewTextHandler(u, nil))) })
		u.mu.Lock()
		defer u.mu.Unlock()
		u.sleep(time.Second)
		test(t, a, func() {
			cancel()
			u.mu.Unlock()
			running.Wait()
			u.mu.Lock()
		})
	})
}

func use(t *testing.T, a *token.Authenticator, credential string) {
	t.Helper()
	if _, err := a.Authenticate(t.Context(), bearer(credential), here); err != nil {
		t.Fatal(err)
	}
}

func TestUsesAreWrittenOnceAMinute(t *testing.T) {
	u := &uses{}
	recording(t, u, func(t *testing.T, a *token.Authenticator, stop func()) {
		busy, other := token.Generate(), token.Generate()
		start := time.Now().Truncate(time.Minute)
		use(t, a, other)
		for time.Since(start) < 150*time.Second {
			use(t, a, busy)
			u.sleep(100 * time.Millisecond)
		}
		if n := len(u.writes); n != 2 {
			t.Fatalf("%d writes in two and a half minutes, want 2", n)
		}
		want := []token.Use{{Hash: token.HashOf(busy), At: start}, {Hash: token.HashOf(other), At: start}}
		slices.SortFunc(want, func(a, b token.Use) int { return slices.Compare(a.Hash[:], b.Hash[:]) })
		if !slices.Equal(u.writes[0], want) {
			t.Errorf("the first write is %v, want %v", u.writes[0], want)
		}
		stop()
		if last := u.writes[len(u.writes)-1]; len(u.writes) != 3 || !slices.Equal(last, []token.Use{
			{Hash: token.HashOf(busy), At: start.Add(2 * time.Minute)},
		}) {
			t.Errorf("at the stop, %d writes, the last %v", len(u.writes), last)
		}
	})
}

// A token that has expired, and a use in a minute that is already stored, are not written.
func TestNotEveryUseIsWritten(t *testing.T) {
	u := &uses{}
	recording(t, u, func(t *testing.T, a *token.Authenticator, stop func()) {
		u.expires = -time.Second
		if _, err := a.Authenticate(t.Context(), bearer(token.Generate()), here); !errors.Is(err, token.ErrExpired) {
			t.Fatal(err)
		}
		u.expires, u.last = 0, time.Nanosecond
		u.sleep(time.Second)
		use(t, a, token.Generate())
		stop()
		if len(u.writes) != 0 {
			t.Errorf("written: %v, want nothing", u.writes)
		}
	})
}

// A write that fails is repeated a minute later.
func TestUsesAreKept(t *testing.T) {
	u := &uses{}
	recording(t, u, func(t *testing.T, a *token.Authenticator, stop func()) {
		u.err = errors.New("broken")
		for range 1200 {
			use(t, a, token.Generate())
		}
		u.sleep(time.Minute)
		if len(u.writes) != 1 || strings.Count(u.log.String(), "broken") != 1 {
			t.Errorf("%d writes that fail, %s", len(u.writes), u.log.String())
		}
		u.err = nil
		stop()
		var sizes []int
		for _, written := range u.writes[1:] {
			sizes = append(sizes, len(written))
		}
		if !slices.Equal(sizes, []int{500, 500, 200}) {
			t.Errorf("transactions of %v uses, want 500, 500 and 200", sizes)
		}
	})
}

// The log has a line at the start and one every 24 hours.
func TestExpiringTokensAreLogged(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		expires, last time.Duration
		want          int // lines a day
	}{{13 * day, day, 1}, {15 * day, day, 0}, {13 * day, 0, 0}, {13 * day, 20 * day, 0}, {-day, 2 * day, 0}} {
		u := &uses{expires: test.expires, last: test.last}
		recording(t, u, func(t *testing.T, a *token.Authenticator, stop func()) {
			for days, sleep := range []time.Duration{day - time.Minute, 2 * time.Minute} {
				u.sleep(sleep)
				n := strings.Count(u.log.String(), "expires soon; see plantstore token rotate")
				if want := test.want * (days + 1); n != want {
					t.Errorf("%d lines for a token that expires in %v and was used %v ago, want %d: %s", n, test.expires, test.last,
						want, u.log.String())
				}
			}
			stop()
		})
	}
}
