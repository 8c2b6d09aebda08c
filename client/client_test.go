package client_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/client"
)

const secret = "a-token-that-must-stay-secret"

// script responds to each request with the next step, and repeats the last one.
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

var (
	created = reply(200, `{"name":"Fern"}`)
	stored  = reply(200, `{"id":7,"name":"Fern"}`, `ETag: "x"`)
	fern    = client.NewPlant{ID: 7, Plant: client.Plant{Name: "Fern"}}
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

func TestNew(t *testing.T) {
	for _, url := range []string{"http://x", "https://x:1/api/", "http://[::1]:80", "HTTP://x"} {
		if _, err := client.New(url, secret); err != nil {
			t.Errorf("New(%q): %v", url, err)
		}
	}
	const extra = "the base URL must have no user, query or fragment"
	for url, want := range map[string]string{
		"http://user@x": extra, "http://user:pass@x": extra, "http://x?a=b": extra, "http://x#y": extra,
		"": "", "127.0.0.1:8080": "", "localhost:8080": "", "ftp://x": "", "http://": "", "http://:80": "",
		"http://x y": "", "//x": "", "httpx://x": "", "/plants": "",
	} {
		if want == "" {
			want = fmt.Sprintf("base URL %q is invalid: use one such as http://127.0.0.1:8080", url)
		}
		if _, err := client.New(url, secret); err == nil || err.Error() != want {
			t.Errorf("New(%q): %v, want %s", url, err, want)
		}
	}
	for _, token := range []string{"", "two words", " ", "line\nbreak", "ü", "\x7f"} {
		_, err := client.New("http://x", token)
		if err == nil || err.Error() != "the token must consist of visible ASCII characters" {
			t.Errorf("New with the token %q: %v", token, err)
		}
	}
	if _, err := client.New("http://x", "!~"); err != nil {
		t.Errorf("New with the lowest and the highest character: %v", err)
	}
}

// The client works on a copy of the HTTP client that it is given.
func TestHTTPClientIsCopied(t *testing.T) {
	h := new(http.Client)
	dial(t, "http://x", client.WithHTTPClient(h))
	if h.CheckRedirect != nil {
		t.Error("New changed the HTTP client")
	}
}

// seen is what a request carried.
type seen struct{ method, uri, body, ifMatch, contentType, authorization string }

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	*s = seen{r.Method, r.RequestURI, string(body), r.Header.Get("If-Match"),
		r.Header.Get("Content-Type"), r.Header.Get("Authorization")}
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(204)
	case strings.HasSuffix(r.RequestURI, "/token"):
		reply(200, `{"name":"ci","store":"main","scopes":[]}`)(w, r)
	case strings.Contains(r.RequestURI, "limit"):
		reply(200, "[]")(w, r)
	default:
		stored(w, r)
	}
}

func TestRequests(t *testing.T) {
	var got seen
	server := httptest.NewServer(&got)
	defer server.Close()
	ctx, empty, after := t.Context(), "", int64(-19)
	list := func(page client.Page) func(*client.Client) error {
		return func(c *client.Client) (err error) {
			for _, err = range c.Plants(ctx, page) {
			}
			return err
		}
	}
	const asJSON = "application/json"
	for _, test := range []struct {
		call func(*client.Client) error
		want seen // with a path below the base URL, and without the token
	}{
		{func(c *client.Client) error {
			_, err := c.Create(ctx, client.NewPlant{ID: math.MinInt64, Plant: client.Plant{Name: "a"}})
			return err
		}, seen{"POST", "/plants", `{"id":-9223372036854775808,"name":"a"}`, "", asJSON, ""}},
		{func(c *client.Client) error {
			text := client.Plant{Name: "\"\\\b\f\n\r\t\x01\u007f\u2028\u2029<&é\\u2028", Tag: &empty}
			_, err := c.Create(ctx, client.NewPlant{ID: math.MaxInt64, Plant: text})
			return err
		}, seen{"POST", "/plants",
			`{"id":9223372036854775807,"name":"\"\\\b\f\n\r\t\u0001` + "\u007f\u2028\u2029<&é" + `\\u2028","tag":""}`,
			"", asJSON, ""}},
		{func(c *client.Client) error { _, err := c.Get(ctx, math.MinInt64); return err },
			seen{"GET", "/plants/-9223372036854775808", "", "", "", ""}},
		{func(c *client.Client) error { _, err := c.Replace(ctx, 0, fern.Plant, `"x"`); return err },
			seen{"PUT", "/plants/0", `{"name":"Fern"}`, `"x"`, asJSON, ""}},
		{func(c *client.Client) error { return c.Remove(ctx, 7, "*") },
			seen{"DELETE", "/plants/7", "", "*", "", ""}},
		{list(client.Page{Size: 1000, After: &after}), seen{"GET", "/plants?after=-19&limit=1000", "", "", "", ""}},
		{list(client.Page{Size: 1}), seen{"GET", "/plants?limit=1", "", "", "", ""}},
		{list(client.Page{Size: 1, Text: "a b&ß", Tag: &empty}),
			seen{"GET", "/plants?limit=1&q=a+b%26%C3%9F&tag=", "", "", "", ""}},
		{func(c *client.Client) error { _, err := c.Token(ctx); return err },
			seen{"GET", "/token", "", "", "", ""}},
	} {
		for base, prefix := range map[string]string{"": "", "/": "", "/some/prefix": "/some/prefix", "/a%2Fb/": "/a%2Fb"} {
			want := test.want
			want.uri, want.authorization = prefix+want.uri, "Bearer "+secret
			if err := test.call(dial(t, server.URL+base)); err != nil || got != want {
				t.Errorf("sent %+v (%v), want %+v", got, err, want)
			}
		}
	}
}

func TestInvalidText(t *testing.T) {
	c, s := start(t, created)
	bad := "\xff"
	for _, p := range []client.Plant{{Name: bad}, {Name: "x", Tag: &bad}} {
		_, createErr := c.Create(t.Context(), client.NewPlant{ID: 1, Plant: p})
		_, replaceErr := c.Replace(t.Context(), 1, p, client.Any)
		for _, err := range []error{createErr, replaceErr} {
			if err == nil || err.Error() != "the name and the tag must be valid UTF-8" {
				t.Errorf("text that is not UTF-8: %v", err)
			}
		}
	}
	s.wantRequests(t, 0)
}

// A change without a precondition is requested with Any, never by mistake with an empty ETag.
func TestEmptyIfMatch(t *testing.T) {
	c, s := start(t, stored)
	for _, empty := range []string{"", " ", "\t"} {
		_, err := c.Replace(t.Context(), 7, fern.Plant, empty)
		for _, err := range []error{err, c.Remove(t.Context(), 7, empty)} {
			if err == nil || err.Error() != "ifMatch is empty: use the ETag of the plant, or client.Any" {
				t.Errorf("with the ifMatch %q: %v", empty, err)
			}
		}
	}
	s.wantRequests(t, 0)
}

func TestResults(t *testing.T) {
	c, _ := start(t, reply(200, `{"id":-7,"name":"Fern","tag":"","more":1}`, `ETag: "x"`))
	plant, createErr := c.Create(t.Context(), fern)
	got, getErr := c.Get(t.Context(), -7)
	replaced, replaceErr := c.Replace(t.Context(), -7, fern.Plant, client.Any)
	if err := errors.Join(createErr, getErr, replaceErr); err != nil {
		t.Fatal(err)
	}
	if plant.Name != "Fern" || plant.Tag == nil || *plant.Tag != "" {
		t.Errorf("Create = %+v", plant)
	}
	for _, p := range []client.Stored{got, replaced} {
		if p.ID != -7 || p.Name != "Fern" || p.Tag == nil || *p.Tag != "" || p.ETag != `"x"` {
			t.Errorf("got %+v", p)
		}
	}
}

func TestToken(t *testing.T) {
	const never, notOurs = "0001-01-01 00:00:00 +0000 UTC", "the response is not from a Plant Store: check the base URL"
	const all = `{"name":"a","store":"b","scopes":[],"expires":"2027-01-01T00:00:00Z","rate":"10/m","burst":3}`
	for body, want := range map[string]string{
		`{"name":"a","store":"b","scopes":["c"],"more":1}`: "{a b [c] " + never + "  0} <nil>",

		all:  "{a b [] 2027-01-01 00:00:00 +0000 UTC 10/m 3} <nil>",
		`{}`: "{  [] " + never + "  0} " + notOurs,
		`x`:  "{  [] " + never + "  0} " + notOurs,
	} {
		c, s := start(t, busy, reply(200, body))
		got, err := c.Token(t.Context())
		if got := fmt.Sprint(got, " ", err); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
		s.wantRequests(t, 2)
	}
	c, _ := start(t, reply(401, `{"error":40104,"message":"unknown"}`))
	if _, err := c.Token(t.Context()); err == nil || err.Error() != "40104: unknown" {
		t.Errorf("a refused token: %v", err)
	}
}

func TestErrors(t *testing.T) {
	long := func(n int) string { // an error body of n bytes
		const start, end = `{"error":40001,"message":"`, `"}`
		return start + strings.Repeat("x", n-len(start)-len(end)) + end
	}
	const notOurs = "the response is not from a Plant Store: check the base URL"
	for _, test := range []struct {
		step   http.HandlerFunc
		number int32
		text   string
	}{
		{taken, 40009, "40009: /id: taken"},
		{fault, 50001, "50001: the service failed (request r1)"},
		{reply(500, `{"error":50001,"message":"failed"}`), 50001, "50001: failed"},
		{reply(499, "", "X-Request-Id: r1"), 0, "HTTP status 499: " + notOurs},
		{reply(400, `{"error":40101,"message":"another status"}`), 0, "HTTP status 400: " + notOurs},
		{reply(400, `{"error":40001,`), 0, "HTTP status 400: " + notOurs},
		{reply(404, "no such page", "Location: /elsewhere"), 0, "HTTP status 404: " + notOurs},
		{reply(302, ""), 0, "HTTP status 302: " + notOurs},
		{redirect, 0, `HTTP status 302: the service redirects to "/elsewhere": use that base URL`},
		{reply(308, "", "Location: /\u009b"), 0, `HTTP status 308: the service redirects to "/\u009b": use that base URL`},
		{reply(400, long(64<<10)), 40001, "40001: " + strings.Repeat("x", 64<<10-28)},
		{reply(400, long(64<<10+1)), 0, "HTTP status 400: " + notOurs},
	} {
		c, _ := start(t, test.step)
		_, err := c.Get(t.Context(), 1)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Number != test.number || e.RetryAfter != 0 || err.Error() != test.text {
			t.Errorf("got %.200v, want number %d and %.200s", err, test.number, test.text)
		}
	}
	c, _ := start(t, reply(429, `{"error":42901,"message":"slower","field":"f"}`, "Retry-After: 61", "X-Request-Id: r2"))
	_, err := c.Get(t.Context(), 1)
	want := client.Error{Status: 429, Number: 42901, Message: "slower", Field: "f", RequestID: "r2",
		RetryAfter: 61 * time.Second}
	if e, ok := errors.AsType[*client.Error](err); !ok || *e != want {
		t.Errorf("got %+v, want %+v", e, want)
	}
}

func TestEndlessResponse(t *testing.T) {
	c, s := start(t, func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	const want = "the response is larger than 83886080 bytes: request smaller pages"
	if err := get(t.Context(), c); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	s.wantRequests(t, 1)
}
