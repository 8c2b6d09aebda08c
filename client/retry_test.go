package client_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/client"
	"plantstore/test/testkit/proxy"
)

type steps = []http.HandlerFunc

var (
	busy     = reply(503, `{"error":50301,"message":"busy"}`)
	unknown  = reply(503, `{"error":50302,"message":"unknown"}`)
	limited  = reply(429, `{"error":42901,"message":"slower"}`)
	taken    = reply(400, `{"error":40009,"message":"/id: taken"}`, "X-Request-Id: r1")
	fault    = reply(500, `{"error":50001,"message":"the service failed"}`, "X-Request-Id: r1")
	gateway  = reply(502, `<h1>Bad Gateway</h1>`)
	proxied  = reply(503, `<h1>Unavailable</h1>`)
	timeout  = reply(504, `<h1>Timeout</h1>`)
	notOurs  = reply(200, `<h1>Welcome</h1>`)
	redirect = reply(302, "", "Location: /elsewhere")
	longWait = reply(503, `{"error":50301,"message":"busy"}`, "Retry-After: 3600")
	gone     = reply(204, "")
	revoked  = reply(401, `{"error":40106,"message":"revoked"}`)
	noPlant  = reply(404, `{"error":40401,"message":"none"}`)
	changed  = reply(412, `{"error":41201,"message":"changed"}`)
)

// cut ends the connection without a response once the request has arrived.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// half sends a part of a response.
func half(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "100")
	io.WriteString(w, `{"name":`)
	w.(http.Flusher).Flush()
	cut(w, r)
}

// The calls, each reduced to its error.
func create(ctx context.Context, c *client.Client) error { _, err := c.Create(ctx, fern); return err }
func get(ctx context.Context, c *client.Client) error    { _, err := c.Get(ctx, 7); return err }
func remove(ctx context.Context, c *client.Client) error { return c.Remove(ctx, 7, client.Any) }
func replace(ctx context.Context, c *client.Client) error {
	_, err := c.Replace(ctx, 7, fern.Plant, client.Any)
	return err
}
func list(ctx context.Context, c *client.Client) (err error) {
	for _, err = range c.Plants(ctx, client.Page{}) {
	}
	return err
}

// The expected error of a call, besides the number of an *Error.
const (
	noError       = 0
	otherError    = -1 // not an *Error
	foreignStatus = -2 // an *Error without a number
)

var retryTests = []struct {
	what    string
	call    func(context.Context, *client.Client) error
	steps   steps
	number  int32
	sent    int32
	unknown bool
}{
	{"create: busy, then 200", create, steps{busy, created}, noError, 2, false},
	{"create: unknown, then 200", create, steps{unknown, created}, noError, 2, false},
	{"create: limited, then 200", create, steps{limited, created}, noError, 2, false},
	{"create: lost connection, then 200", create, steps{cut, created}, noError, 2, false},
	{"create: incomplete response, then 200", create, steps{half, created}, noError, 2, false},
	{"create: failures of a gateway, then 200", create, steps{gateway, proxied, timeout, created}, noError, 4, false},
	{"create: always busy", create, steps{busy}, 50301, 4, false},
	{"create: always limited", create, steps{limited}, 42901, 4, false},
	{"create: connections always lost", create, steps{cut}, otherError, 4, true},
	{"create: always unknown", create, steps{unknown}, 50302, 4, true},
	{"create: always failures of a gateway", create, steps{gateway}, foreignStatus, 4, true},
	{"create: lost connection, then always busy", create, steps{cut, busy}, 50301, 4, true},
	{"create: unknown, then always busy", create, steps{unknown, busy}, 50301, 4, true},
	{"create: failure of a gateway, then always limited", create, steps{gateway, limited}, 42901, 4, true},
	{"create: busy, failure of a proxy, then always busy", create, steps{busy, proxied, busy}, 50301, 4, true},
	{"create: incomplete response, then revoked", create, steps{half, revoked}, 40106, 2, true},
	{"create: lost connection, then a long wait", create, steps{cut, longWait}, 50301, 2, true},
	{"create: lost connection, then taken", create, steps{cut, taken}, 40009, 2, false},
	{"create: busy, then revoked", create, steps{busy, revoked}, 40106, 2, false},
	{"create: taken", create, steps{taken}, 40009, 1, false},
	{"create: a fault", create, steps{fault}, 50001, 1, true},
	{"create: a long wait", create, steps{longWait}, 50301, 1, false},
	{"create: redirected", create, steps{redirect, created}, foreignStatus, 1, false},
	{"create: 501 of a proxy", create, steps{reply(501, "")}, foreignStatus, 1, true},
	{"create: 505 of a proxy", create, steps{reply(505, "")}, foreignStatus, 1, true},
	{"create: 499 of a proxy", create, steps{reply(499, "")}, foreignStatus, 1, false},
	{"create: 300 of a proxy", create, steps{reply(300, "")}, foreignStatus, 1, false},
	{"create: 299 of a proxy", create, steps{reply(299, "")}, foreignStatus, 1, true},
	{"create: not a Plant Store", create, steps{notOurs}, otherError, 1, true},
	{"create: 200 without a name", create, steps{reply(200, `{"tag":"x"}`)}, otherError, 1, true},
	{"create: 200 with a null name", create, steps{reply(200, `{"name":null}`)}, otherError, 1, true},
	{"create: 200 with an array", create, steps{reply(200, `[]`)}, otherError, 1, true},
	{"create: 200 with half a body", create, steps{reply(200, `{"name":"Fern"`)}, otherError, 1, true},
	{"get: lost connection, busy, then 200", get, steps{cut, busy, stored}, noError, 3, false},
	{"get: unknown, lost connection, then a fault", get, steps{unknown, cut, fault}, 50001, 3, false},
	{"get: not a Plant Store", get, steps{notOurs}, otherError, 1, false},
	{"get: 200 without an id", get, steps{reply(200, `{"name":"Fern"}`)}, otherError, 1, false},
	{"get: 200 without a name", get, steps{reply(200, `{"id":7}`)}, otherError, 1, false},
	{"list: connections always lost", list, steps{cut}, otherError, 4, false},
	{"replace: busy, limited, then 200", replace, steps{busy, limited, stored}, noError, 3, false},
	{"replace: always busy", replace, steps{busy}, 50301, 4, false},
	{"replace: busy, then gone", replace, steps{busy, noPlant}, 40401, 2, false},
	{"replace: limited, then changed", replace, steps{limited, changed}, 41201, 2, false},
	{"replace: lost connection", replace, steps{cut, stored}, otherError, 1, true},
	{"replace: incomplete response", replace, steps{half, stored}, otherError, 1, true},
	{"replace: unknown", replace, steps{unknown, stored}, 50302, 1, true},
	{"replace: a fault", replace, steps{fault}, 50001, 1, true},
	{"replace: 503 of a proxy", replace, steps{proxied, stored}, foreignStatus, 1, true},
	{"replace: 502 of a proxy", replace, steps{gateway, stored}, foreignStatus, 1, true},
	{"replace: 504 of a proxy", replace, steps{timeout, stored}, foreignStatus, 1, true},
	{"replace: not a Plant Store", replace, steps{notOurs}, otherError, 1, true},
	{"replace: 200 without an id", replace, steps{reply(200, `{"name":"Fern"}`)}, otherError, 1, true},
	{"remove: busy, then 204", remove, steps{busy, gone}, noError, 2, false},
	{"remove: busy, then gone", remove, steps{busy, noPlant}, 40401, 2, false},
	{"remove: busy, then lost connection", remove, steps{busy, cut}, otherError, 2, true},
	{"remove: lost connection", remove, steps{cut, gone}, otherError, 1, true},
	{"remove: 200 in place of 204", remove, steps{notOurs}, foreignStatus, 1, true},
}

func TestRetries(t *testing.T) {
	for _, test := range retryTests {
		t.Run(test.what, func(t *testing.T) {
			c, s := start(t, test.steps...)
			err := test.call(t.Context(), c)
			got := int32(noError)
			if e, ok := errors.AsType[*client.Error](err); ok && e.Number == 0 {
				got = foreignStatus
			} else if ok {
				got = e.Number
				if e.Status != int(e.Number)/100 {
					t.Errorf("error %d has the status %d", e.Number, e.Status)
				}
			} else if err != nil {
				got = otherError
			}
			if got != test.number || errors.Is(err, client.ErrUnknown) != test.unknown {
				t.Errorf("got %v, want error %d, outcome unknown: %v", err, test.number, test.unknown)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the token is in the error %v", err)
			}
			s.wantRequests(t, test.sent)
		})
	}
}

// Number of attempts: none is retried with 0, and the count is in the error from the second on.
func TestAttempts(t *testing.T) {
	for retries, want := range map[int]string{0: "50301: busy", 1: "50301: busy (tried 2 times)", -1: "50301: busy"} {
		s := &script{steps: steps{busy}}
		server := httptest.NewServer(s)
		defer server.Close()
		err := create(t.Context(), dial(t, server.URL, client.WithRetries(retries, -time.Second)))
		if err == nil || err.Error() != want {
			t.Errorf("with %d retries: %v, want %s", retries, err, want)
		}
		s.wantRequests(t, int32(max(retries, 0)+1))
	}
}

// A refused connection has sent nothing, so even a replace is retried.
func TestRefusedConnection(t *testing.T) {
	refused := dial(t, "http://"+proxy.ClosedAddress(t))
	wantNotSent(t, "a refused connection", t.Context(), refused, "refused (tried 4 times)")
}

// Without a connection the outcome is never unknown, even after a timeout.
func TestNoConnection(t *testing.T) {
	untrusted := httptest.NewUnstartedServer(created)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	wantNotSent(t, "an untrusted certificate", t.Context(), dial(t, untrusted.URL), "certificate")
	if err := create(t.Context(), dial(t, untrusted.URL)); strings.Contains(err.Error(), "tried") {
		t.Errorf("an untrusted certificate is retried: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	wantNotSent(t, "a context that has ended", ended, dial(t, untrusted.URL), "canceled")
	if err := create(ended, dial(t, untrusted.URL)); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v, want it to be context.Canceled", err)
	}
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		hangs := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			<-over
			return nil, errors.New("the test is over")
		}}
		h := &http.Client{Transport: hangs, Timeout: time.Second}
		wantNotSent(t, "a dial that hangs", t.Context(), dial(t, "http://plants.example", client.WithHTTPClient(h)),
			"(tried 4 times)")
	})
}

func wantNotSent(t *testing.T, what string, ctx context.Context, c *client.Client, want string) {
	t.Helper()
	for _, err := range []error{create(ctx, c), replace(ctx, c)} {
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, client.ErrUnknown) {
			t.Errorf("%s: %v, want %q and a known outcome", what, err, want)
		}
	}
}
