package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"plantstore/client"
)

// transport responds without a network, so that time in a bubble is exact.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// over returns a client that sends its requests to f.
func over(t *testing.T, f transport, options ...client.Option) *client.Client {
	t.Helper()
	return dial(t, "http://plants.example", append(options, client.WithHTTPClient(&http.Client{Transport: f}))...)
}

func recorded(h http.HandlerFunc) (*http.Response, error) {
	w := httptest.NewRecorder()
	h(w, nil)
	return w.Result(), nil
}

func limitedFor(retryAfter string) http.HandlerFunc {
	return reply(429, `{"error":42901,"message":"slower"}`, "Retry-After: "+retryAfter)
}

const ms = time.Millisecond

// Each pause is between half of its nominal length and all of it, after what Retry-After asks for.
func TestPauses(t *testing.T) {
	for _, test := range []struct {
		what    string
		steps   steps
		nominal []time.Duration
		plus    time.Duration
	}{
		{"nothing fails", nil, nil, 0},
		{"pauses double up to 5 s", steps{busy, busy, busy, busy, busy, busy, busy, busy},
			[]time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms}, 0},
		{"19 seconds", steps{limitedFor("19")}, []time.Duration{100 * ms}, 19 * time.Second},
		{"60 seconds", steps{limitedFor("60")}, []time.Duration{100 * ms}, time.Minute},
		{"a date", steps{limitedFor("Sat, 01 Jan 2000 00:00:09 GMT")}, []time.Duration{100 * ms}, 9 * time.Second},
		{"a past date", steps{limitedFor("Fri, 31 Dec 1999 00:00:00 GMT")}, []time.Duration{100 * ms}, 0},
		{"neither", steps{limitedFor("soon")}, []time.Duration{100 * ms}, 0},
		{"more than 31 bits", steps{limitedFor("2147483648")}, []time.Duration{100 * ms}, 0},
		{"a negative number", steps{limitedFor("-5")}, []time.Duration{100 * ms}, 0},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // starts at midnight of 1 January 2000
				var times []time.Time
				var announced []time.Duration
				remaining := append(test.steps, created)
				c := over(t, func(*http.Request) (*http.Response, error) {
					times = append(times, time.Now())
					step := remaining[0]
					remaining = remaining[1:]
					return recorded(step)
				}, client.WithRetries(10, 100*ms), client.OnWait(func(failed error, wait time.Duration) {
					if e, ok := errors.AsType[*client.Error](failed); !ok || e.Status != 429 && e.Status != 503 {
						t.Errorf("a wait after %v", failed)
					}
					announced = append(announced, wait)
				}))
				if err := create(t.Context(), c); err != nil {
					t.Error(err)
				}
				if len(times) != len(test.nominal)+1 || len(announced) != len(test.nominal) {
					t.Fatalf("%d requests and %d waits, want %d pauses", len(times), len(announced), len(test.nominal))
				}
				for i, nominal := range test.nominal {
					pause := times[i+1].Sub(times[i]) - test.plus
					if pause < nominal/2 || pause > nominal {
						t.Errorf("pause %d is %v, want %v to %v after %v", i+1, pause, nominal/2, nominal, test.plus)
					}
					if announced[i] != pause+test.plus {
						t.Errorf("pause %d is %v, announced %v", i+1, pause+test.plus, announced[i])
					}
				}
			})
		})
	}
}

// By default an attempt takes at most 30 seconds and is retried 5 times from 100 milliseconds.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func(original http.RoundTripper) { http.DefaultTransport = original }(http.DefaultTransport)
		over := make(chan struct{})
		defer close(over)
		http.DefaultTransport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			<-over
			return nil, errors.New("the test is over")
		}}
		c, err := client.New("http://plants.example", secret)
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		err = create(t.Context(), c)
		pauses := time.Since(started) - 6*30*time.Second
		if err == nil || pauses < 3100*ms/2 || pauses > 3100*ms {
			t.Errorf("%v after %v of pauses, want 1.55 to 3.1 s", err, pauses)
		}
	})
}

// Concurrent requests use the same connections again, also those of many goroutines.
func TestConnectionsAreKept(t *testing.T) {
	const n = 8 // more than net/http keeps by default
	var conns atomic.Int32
	var together sync.WaitGroup // requests that must be in flight at once
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		together.Done()
		together.Wait()
		created(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := dial(t, server.URL)
	for range 2 {
		together.Add(n)
		var calls errgroup.Group
		for range n {
			calls.Go(func() error { return create(t.Context(), c) })
		}
		if err := calls.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if conns.Load() != n {
		t.Errorf("%d connections for twice %d requests, want %d", conns.Load(), n, n)
	}
}

func TestContextEnds(t *testing.T) {
	for what, test := range map[string]struct {
		respond transport
		unknown bool
	}{
		"while the service is busy": {func(*http.Request) (*http.Response, error) { return recorded(busy) }, false},
		"without a response": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				c := over(t, func(r *http.Request) (*http.Response, error) {
					requests++
					return test.respond(r)
				}, client.WithRetries(1000, time.Second))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				started := time.Now()
				err := create(ctx, c)
				// The call may end before the deadline by the pause that would pass it.
				took := time.Since(started)
				if !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second || took < 5*time.Second ||
					errors.Is(err, client.ErrUnknown) != test.unknown || !test.unknown && requests < 3 {
					t.Errorf("after %v and %d requests: %v, want the deadline within 10 s", took, requests, err)
				}
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(300*ms, cancel) // within the first pause
				started = time.Now()
				err = create(ctx, c)
				if took := time.Since(started); !errors.Is(err, context.Canceled) || took != 300*ms ||
					errors.Is(err, client.ErrUnknown) != test.unknown {
					t.Errorf("after %v: %v, want the cancellation after 300 ms", took, err)
				}
			})
		})
	}
}

// A wait of more than a minute, or beyond the deadline of the call, is not waited for.
func TestLongRetryAfter(t *testing.T) {
	for _, test := range []struct {
		retryAfter string
		deadline   time.Duration
		ok         bool
	}{
		{"61", time.Hour, false}, {"3600", 2 * time.Hour, false}, {"2147483647", time.Hour, false},
		{"Sat, 01 Jan 2000 00:01:01 GMT", time.Hour, false},
		{"30", 30 * time.Second, false}, {"30", 31 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			requests := steps{limitedFor(test.retryAfter), created}
			c := over(t, func(*http.Request) (*http.Response, error) {
				step := requests[0]
				requests = requests[1:]
				return recorded(step)
			}, client.WithRetries(1, 0))
			ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
			defer cancel()
			started := time.Now()
			err := create(ctx, c)
			if took := time.Since(started); (err == nil) != test.ok || !test.ok && took != 0 {
				t.Errorf("Retry-After %s with a deadline of %v: %v after %v", test.retryAfter, test.deadline, err, took)
			}
		})
	}
}
