package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/client"
)

const secret = "a-token-that-nobody-may-see"

// script answers each request with the next step, and with the last one from then on.
type script struct {
	steps []http.HandlerFunc
	n     atomic.Int32
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	n := int(s.n.Add(1))
	s.steps[min(n, len(s.steps))-1](w, r)
}

func (s *script) wantRequests(t *testing.T, want int32) {
	t.Helper()
	if got := s.n.Load(); got != want {
		t.Errorf("the service got %d requests, want %d", got, want)
	}
}

func reply(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Add(name, value)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// cut ends the connection once the request is there, without an answer.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// half sends a part of an answer.
func half(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "100")
	io.WriteString(w, `{"name":`)
	w.(http.Flusher).Flush()
	cut(w, r)
}

var (
	created  = reply(200, `{"name":"Fern"}`)
	stored   = reply(200, `{"id":7,"name":"Fern"}`, `ETag: "x"`)
	busy     = reply(503, `{"error":50301,"message":"busy"}`)
	unknown  = reply(503, `{"error":50302,"message":"unknown"}`)
	limited  = reply(429, `{"error":42901,"message":"slower"}`)
	wrong    = reply(400, `{"error":40009,"message":"/id: taken"}`, "X-Request-Id: r1")
	fault    = reply(500, `{"error":50001,"message":"the service failed"}`, "X-Request-Id: r1")
	gateway  = reply(502, `<h1>Bad Gateway</h1>`)
	proxied  = reply(503, `<h1>Unavailable</h1>`)
	notOurs  = reply(200, `<h1>Welcome</h1>`)
	redirect = reply(302, "", "Location: /elsewhere")
	longWait = reply(503, `{"error":50301,"message":"busy"}`, "Retry-After: 3600")
	fern     = client.NewPlant{ID: 7, Plant: client.Plant{Name: "Fern"}}
)

func start(t *testing.T, steps ...http.HandlerFunc) (*client.Client, *script) {
	t.Helper()
	s := &script{steps: steps}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return dial(t, server.URL), s
}

func dial(t *testing.T, url string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, secret, append([]client.Option{client.WithRetries(3, time.Millisecond)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRetries(t *testing.T) {
	ctx := t.Context()
	create := func(c *client.Client) error { _, err := c.Create(ctx, fern); return err }
	get := func(c *client.Client) error { _, err := c.Get(ctx, 7); return err }
	replace := func(c *client.Client) error { _, err := c.Replace(ctx, 7, fern.Plant, ""); return err }
	remove := func(c *client.Client) error { return c.Remove(ctx, 7, "") }
	count := func(c *client.Client) error { _, err := c.Count(ctx); return err }
	list := func(c *client.Client) (err error) {
		for _, err = range c.Plants(ctx, client.Page{}) {
		}
		return err
	}
	gone := reply(204, "")
	revoked, noPlant := reply(401, `{"error":40106,"message":"revoked"}`), reply(404, `{"error":40401,"message":"none"}`)
	changed := reply(412, `{"error":41201,"message":"changed"}`)
	type steps = []http.HandlerFunc
	for _, test := range []struct {
		what    string
		call    func(*client.Client) error
		steps   steps
		number  int32 // of the error; 0: none, -1: not an *Error, -2: an *Error without a number
		sent    int32
		unknown bool // it may have been carried out
	}{
		{"create: busy, then 200", create, steps{busy, created}, 0, 2, false},
		{"create: unknown, then 200", create, steps{unknown, created}, 0, 2, false},
		{"create: limited, then 200", create, steps{limited, created}, 0, 2, false},
		{"create: cut off, then 200", create, steps{cut, created}, 0, 2, false},
		{"create: half an answer, then 200", create, steps{half, created}, 0, 2, false},
		{"create: a gateway's failures, then 200", create, steps{gateway, proxied, created}, 0, 3, false},
		{"create: busy for ever", create, steps{busy}, 50301, 4, false},
		{"create: cut off for ever", create, steps{cut}, -1, 4, true},
		{"create: unknown for ever", create, steps{unknown}, 50302, 4, true},
		{"create: a gateway's failure for ever", create, steps{gateway}, -2, 4, true},
		{"create: cut off, then busy for ever", create, steps{cut, busy}, 50301, 4, true},
		{"create: unknown, then busy for ever", create, steps{unknown, busy}, 50301, 4, true},
		{"create: a gateway's failure, then limited for ever", create, steps{gateway, limited}, 42901, 4, true},
		{"create: busy, a proxy's failure, then busy for ever", create, steps{busy, proxied, busy}, 50301, 4, true},
		{"create: half an answer, then the token is revoked", create, steps{half, revoked}, 40106, 2, true},
		{"create: cut off, then a long wait asked for", create, steps{cut, longWait}, 50301, 2, true},
		{"create: cut off, then taken", create, steps{cut, wrong}, 40009, 2, false},
		{"create: busy, then the token is revoked", create, steps{busy, revoked}, 40106, 2, false},
		{"create: refused", create, steps{wrong}, 40009, 1, false},
		{"create: a fault", create, steps{fault}, 50001, 1, true},
		{"create: a long wait asked for", create, steps{longWait}, 50301, 1, false},
		{"create: redirected", create, steps{redirect, created}, -2, 1, false},
		{"create: not a Plant Store", create, steps{notOurs}, -1, 1, true},
		{"get: cut off, busy, then 200", get, steps{cut, busy, stored}, 0, 3, false},
		{"get: unknown, cut off, then a fault", get, steps{unknown, cut, fault}, 50001, 3, false},
		{"get: not a Plant Store", get, steps{notOurs}, -1, 1, false},
		{"list: cut off for ever", list, steps{cut}, -1, 4, false},
		{"count: a gateway's failure for ever", count, steps{gateway}, -2, 4, false},
		{"replace: busy, limited, then 200", replace, steps{busy, limited, stored}, 0, 3, false},
		{"replace: busy for ever", replace, steps{busy}, 50301, 4, false},
		{"replace: busy, then gone", replace, steps{busy, noPlant}, 40401, 2, false},
		{"replace: limited, then changed", replace, steps{limited, changed}, 41201, 2, false},
		{"replace: cut off", replace, steps{cut, stored}, -1, 1, true},
		{"replace: half an answer", replace, steps{half, stored}, -1, 1, true},
		{"replace: unknown", replace, steps{unknown, stored}, 50302, 1, true},
		{"replace: a fault", replace, steps{fault}, 50001, 1, true},
		{"replace: a proxy's 503", replace, steps{proxied, stored}, -2, 1, true},
		{"replace: a proxy's 502", replace, steps{gateway, stored}, -2, 1, true},
		{"replace: not a Plant Store", replace, steps{notOurs}, -1, 1, true},
		{"remove: busy, then 204", remove, steps{busy, gone}, 0, 2, false},
		{"remove: busy, then gone", remove, steps{busy, noPlant}, 40401, 2, false},
		{"remove: busy, then cut off", remove, steps{busy, cut}, -1, 2, true},
		{"remove: cut off", remove, steps{cut, gone}, -1, 1, true},
		{"remove: 200 is not 204", remove, steps{notOurs}, -2, 1, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			c, s := start(t, test.steps...)
			err := test.call(c)
			e, ok := errors.AsType[*client.Error](err)
			switch {
			case test.number == 0 && err != nil, test.number == -1 && (err == nil || ok),
				test.number == -2 && (!ok || e.Number != 0), test.number > 0 && (!ok || e.Number != test.number || e.Status != int(e.Number)/100):
				t.Errorf("got %v, want error %d", err, test.number)
			}
			if errors.Is(err, client.ErrUnknown) != test.unknown {
				t.Errorf("got %v, want an unknown outcome: %v", err, test.unknown)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the token is in the error %v", err)
			}
			s.wantRequests(t, test.sent)
		})
	}
}

// A connection that is refused has carried nothing: also a replace is tried again.
func TestRefusedConnection(t *testing.T) {
	c := dial(t, "http://"+silentAddress(t))
	_, err := c.Replace(t.Context(), 7, fern.Plant, "")
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "tried 4 times") || errors.Is(err, client.ErrUnknown) {
		t.Errorf("got %v, want a refused connection, tried 4 times", err)
	}
}

// silentAddress is one that nobody listens at, and that nobody else can begin to listen at during the test:
// a socket has it and does not listen.
func silentAddress(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", address.(*syscall.SockaddrInet4).Port)
}

// Where no connection comes about nothing is in doubt, also when it is the time that ends.
func TestNoConnection(t *testing.T) {
	untrusted := httptest.NewUnstartedServer(created)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	for _, test := range []struct {
		what, url, want string
		ctx             context.Context
	}{
		{"a certificate that nobody trusts", untrusted.URL, "certificate", t.Context()},
		{"a call that is over before it begins", untrusted.URL, "canceled", ended},
	} {
		wantNoDoubt(t, test.what, test.ctx, dial(t, test.url), test.want)
	}
	// In a bubble the time ends when the dial hangs, and never before it has begun.
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		hangs := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			<-over
			return nil, errors.New("the test is over")
		}}
		c := dial(t, "http://plants.example", client.WithHTTPClient(&http.Client{Transport: hangs, Timeout: time.Second}))
		wantNoDoubt(t, "a dial that hangs", t.Context(), c, "tried 4 times")
	})
}

func wantNoDoubt(t *testing.T, what string, ctx context.Context, c *client.Client, want string) {
	t.Helper()
	_, created := c.Create(ctx, fern)
	_, replaced := c.Replace(ctx, 7, fern.Plant, "")
	for _, err := range []error{created, replaced} {
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, client.ErrUnknown) {
			t.Errorf("%s: %v, want %q and no doubt", what, err, want)
		}
	}
}

// transport answers without a network, so that time in a bubble is exact.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func canned(h http.HandlerFunc) (*http.Response, error) {
	w := httptest.NewRecorder()
	h(w, nil)
	return w.Result(), nil
}

func TestPauses(t *testing.T) {
	asked := func(value string) http.HandlerFunc {
		return reply(429, `{"error":42901,"message":"slower"}`, "Retry-After: "+value)
	}
	for _, test := range []struct {
		what        string
		steps       []http.HandlerFunc
		least, most time.Duration
	}{
		{"nothing fails", nil, 0, 0},
		{"pauses double", []http.HandlerFunc{busy, busy, busy}, 350 * time.Millisecond, 700 * time.Millisecond},
		{"and stay below a bound", []http.HandlerFunc{busy, busy, busy, busy, busy, busy, busy, busy}, 8 * time.Second, 17 * time.Second},
		{"Retry-After in seconds", []http.HandlerFunc{asked("7")}, 7050 * time.Millisecond, 7100 * time.Millisecond},
		{"Retry-After as a date", []http.HandlerFunc{asked("Sat, 01 Jan 2000 00:00:09 GMT")}, 9 * time.Second, 9100 * time.Millisecond}, // the bubble begins at midnight
		{"Retry-After that is past", []http.HandlerFunc{asked("Fri, 31 Dec 1999 00:00:00 GMT")}, 50 * time.Millisecond, 100 * time.Millisecond},
		{"Retry-After that is neither", []http.HandlerFunc{asked("soon")}, 50 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps, began := append(test.steps, created), time.Now()
				c := dial(t, "http://plants.example", client.WithRetries(10, 100*time.Millisecond), client.WithHTTPClient(&http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
					step := steps[0]
					steps = steps[1:]
					return canned(step)
				})}))
				if _, err := c.Create(t.Context(), fern); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < test.least || took > test.most {
					t.Errorf("took %v, want %v to %v", took, test.least, test.most)
				}
			})
		})
	}
}

func TestContextEnds(t *testing.T) {
	const unanswered = "while nothing is answered"
	for what, answer := range map[string]transport{
		"while the service is busy": func(*http.Request) (*http.Response, error) { return canned(busy) },
		unanswered: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, "http://plants.example", client.WithRetries(1000, time.Second), client.WithHTTPClient(&http.Client{Transport: answer}))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				_, err := c.Create(ctx, fern)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second || errors.Is(err, client.ErrUnknown) != (what == unanswered) {
					t.Errorf("after %v: %v, want the end of the deadline within 10 s", took, err)
				}
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(1500*time.Millisecond, cancel)
				began = time.Now()
				_, err = c.Create(ctx, fern)
				if took := time.Since(began); !errors.Is(err, context.Canceled) || took != 1500*time.Millisecond || errors.Is(err, client.ErrUnknown) != (what == unanswered) {
					t.Errorf("after %v: %v, want the cancellation at 1.5 s", took, err)
				}
			})
		})
	}
}

// A caller who gives up while the service has the request does not know.
func TestGivenUp(t *testing.T) {
	ctx, giveUp := context.WithCancel(t.Context())
	c, _ := start(t, func(_ http.ResponseWriter, r *http.Request) {
		giveUp()
		<-r.Context().Done()
	})
	if _, err := c.Create(ctx, fern); !errors.Is(err, context.Canceled) || !errors.Is(err, client.ErrUnknown) {
		t.Errorf("got %v, want the cancellation and an unknown outcome", err)
	}
}

// A try that hangs is given up and repeated while the context lasts.
func TestTryHangs(t *testing.T) {
	release := make(chan struct{})
	s := &script{steps: []http.HandlerFunc{func(http.ResponseWriter, *http.Request) { <-release }, created}}
	server := httptest.NewServer(s)
	defer server.Close()
	defer close(release)
	c := dial(t, server.URL, client.WithHTTPClient(&http.Client{Timeout: time.Second}))
	if _, err := c.Create(t.Context(), fern); err != nil {
		t.Error(err)
	}
	if got := s.n.Load(); got < 2 { // a slow machine may need more
		t.Errorf("the service got %d requests, want 2 at least", got)
	}
}

func TestWhatIsSent(t *testing.T) {
	empty := ""
	var method, path, body, match, auth string
	c, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		method, path, match, auth = r.Method, r.URL.Path, r.Header.Get("If-Match"), r.Header.Get("Authorization")
		if r.Method == "DELETE" {
			w.WriteHeader(204)
			return
		}
		stored(w, r)
	})
	want := func(err error, m, p, ifMatch string) {
		t.Helper()
		if err != nil || method != m || path != p || match != ifMatch || auth != "Bearer "+secret {
			t.Errorf("got %s %s If-Match %q %s (%v), want %s %s If-Match %q", method, path, match, auth, err, m, p, ifMatch)
		}
	}
	_, err := c.Get(t.Context(), math.MinInt64)
	want(err, "GET", "/plants/-9223372036854775808", "")
	_, err = c.Replace(t.Context(), math.MaxInt64, fern.Plant, `"x"`)
	want(err, "PUT", "/plants/9223372036854775807", `"x"`)
	want(c.Remove(t.Context(), 0, "*"), "DELETE", "/plants/0", "*")

	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body, path = string(text), r.URL.Path
		w.Write(text)
	}))
	defer echo.Close()
	c = dial(t, echo.URL+"/some/prefix/")
	for _, test := range []struct {
		p    client.NewPlant
		want string
	}{
		{client.NewPlant{ID: math.MinInt64, Plant: client.Plant{Name: "a"}}, `{"id":-9223372036854775808,"name":"a"}`},
		{client.NewPlant{ID: math.MaxInt64, Plant: client.Plant{Name: "", Tag: &empty}}, `{"id":9223372036854775807,"name":"","tag":""}`},
	} {
		got, err := c.Create(t.Context(), test.p)
		if err != nil || body != test.want || path != "/some/prefix/plants" {
			t.Errorf("sent %s to %s (%v), want %s", body, path, err, test.want)
		}
		if got.Name != test.p.Name || (got.Tag == nil) != (test.p.Tag == nil) {
			t.Errorf("got %+v, want %+v", got, test.p.Plant)
		}
	}
	body = ""
	bad := "\xff"
	for _, p := range []client.Plant{{Name: bad}, {Name: "x", Tag: &bad}} {
		if _, err := c.Create(t.Context(), client.NewPlant{ID: 1, Plant: p}); err == nil || body != "" {
			t.Errorf("text that is not UTF-8 was sent as %s (%v)", body, err)
		}
	}
}

// ids serves plants 1 to 5 in pages, linking to another host to see that it is not asked.
func ids(pages *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		pages.Add(1)
		limit, after := 2, int64(0)
		fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		fmt.Sscan(r.URL.Query().Get("after"), &after)
		if r.Header.Get("Prefer") == "count=exact" {
			w.Header().Set("Plants-Count", "5")
		}
		page := []client.NewPlant{}
		for id := after + 1; id <= 5 && len(page) < limit; id++ {
			page = append(page, client.NewPlant{ID: id, Plant: client.Plant{Name: "x"}})
		}
		if end := after + int64(limit); end < 5 {
			w.Header().Add("Link", `</docs>; rel="help"`)
			w.Header().Add("Link", fmt.Sprintf(`<http://elsewhere.invalid/plants?limit=%d&after=%d>; rel="next"`, limit, end))
		}
		json.NewEncoder(w).Encode(page)
	}
}

func TestPlants(t *testing.T) {
	var pages atomic.Int32
	c, s := start(t, busy, ids(&pages))
	walk := func(from client.Page, stop int) (got []int64) {
		pages.Store(0)
		for p, err := range c.Plants(t.Context(), from) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, p.ID); len(got) == stop {
				break
			}
		}
		return got
	}
	after := int64(3)
	for _, test := range []struct {
		from  client.Page
		stop  int
		want  string
		pages int32
	}{
		{client.Page{}, 0, "[1 2 3 4 5]", 3},
		{client.Page{Size: 1000}, 0, "[1 2 3 4 5]", 1},
		{client.Page{After: &after}, 0, "[4 5]", 1},
		{client.Page{}, 2, "[1 2]", 1},
		{client.Page{}, 3, "[1 2 3]", 2},
	} {
		if got := fmt.Sprint(walk(test.from, test.stop)); got != test.want || pages.Load() != test.pages {
			t.Errorf("%+v to %d: %s in %d pages, want %s in %d", test.from, test.stop, got, pages.Load(), test.want, test.pages)
		}
	}
	if n, err := c.Count(t.Context()); n != 5 || err != nil {
		t.Errorf("Count = %d, %v", n, err)
	}
	s.wantRequests(t, 1+3+1+1+1+2+1)
}

func TestPlantsEndWithAnError(t *testing.T) {
	page := `[{"id":1,"name":"x"},{"id":2,"name":"x"}]`
	next := `Link: </plants?after=2>; rel="next"`
	for what, test := range map[string]struct {
		steps []http.HandlerFunc
		seen  int
	}{
		"refused":                {[]http.HandlerFunc{wrong}, 0},
		"refused on page 2":      {[]http.HandlerFunc{reply(200, page, next), wrong}, 2},
		"the same page for ever": {[]http.HandlerFunc{reply(200, page, next)}, 2},
		"not a list":             {[]http.HandlerFunc{notOurs}, 0},
		"not a list of plants":   {[]http.HandlerFunc{reply(200, `[{"fish":1}]`)}, 0},
		"an id past int64":       {[]http.HandlerFunc{reply(200, `[{"id":9223372036854775808,"name":"x"}]`)}, 0},
	} {
		c, _ := start(t, test.steps...)
		var seen, failed int
		for _, err := range c.Plants(t.Context(), client.Page{}) {
			if err != nil {
				failed++
			} else {
				seen++
			}
		}
		if seen != test.seen || failed != 1 {
			t.Errorf("%s: %d plants and %d errors, want %d and 1", what, seen, failed, test.seen)
		}
	}
}

func TestExactIDs(t *testing.T) {
	c, _ := start(t, reply(200, `[{"id":-9223372036854775808,"name":"a"},{"id":9007199254740993,"name":"b","tag":""},{"id":9223372036854775807,"name":"c","tag":"t"}]`))
	var got []string
	for p, err := range c.Plants(t.Context(), client.Page{}) {
		if err != nil {
			t.Fatal(err)
		}
		tag := "none"
		if p.Tag != nil {
			tag = fmt.Sprintf("%q", *p.Tag)
		}
		got = append(got, fmt.Sprint(p.ID, " ", tag))
	}
	if got, want := fmt.Sprint(got), `[-9223372036854775808 none 9007199254740993 "" 9223372036854775807 "t"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestErrorText(t *testing.T) {
	for want, step := range map[string]http.HandlerFunc{
		"40009: /id: taken":                      wrong,
		"50001: the service failed (request r1)": fault,
		"40001: \x1b[31m red":                    reply(400, `{"error":40001,"message":"\u001b[31m red"}`),
		"HTTP status 404: the response is not from a Plant Store: check the base URL": reply(404, "no such page"),
		"HTTP status 302: the service redirects to \"/elsewhere\": use that base URL": redirect,
	} {
		c, _ := start(t, step)
		if _, err := c.Get(t.Context(), 1); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestNew(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:8080", "localhost:8080", "ftp://x", "http://", "http://:80", "http://user:pass@x", "http://x?a=b", "http://x#y", "http://x y"} {
		if _, err := client.New(url, secret); err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("New(%q): %v", url, err)
		}
	}
	for _, token := range []string{"", "two words", "line\nbreak", "ü"} {
		if _, err := client.New("http://x", token); err == nil || token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("New with the token %q: %v", token, err)
		}
	}
}

func TestEndlessAnswer(t *testing.T) {
	c, s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	if _, err := c.Get(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("got %v, want that the answer is too large", err)
	}
	s.wantRequests(t, 1)
}
