// Package browser tests the pages of the real binary in a real browser, Debian's Chromium, which can reach only this
// machine.
package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/test/testkit"
	"plantstore/test/testkit/chromium"
)

// browser is the browser that all tests share, or nil if none is installed.
var browser context.Context

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "4") // Tests often wait; -parallel overrides it.
	os.Exit(func() int {
		var stop func()
		var err error
		if browser, stop, err = chromium.Start(); err != nil {
			fmt.Fprintln(os.Stderr, "start the browser:", err)
			return 1
		}
		defer stop()
		return testkit.Main(m)
	}())
}

// service is a running product with a database of its own.
type service struct {
	*testkit.Server
	db    string
	front string // the address for pages
}

// serve starts the product with a new database.
func serve(t *testing.T, args ...string) *service {
	t.Helper()
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.Start(t, db, args...)
	return &service{s, db, s.URL}
}

// openConsole starts the product with plants and opens its console. The test runs in parallel with others.
func openConsole(t *testing.T, plants ...string) (*service, *page) {
	t.Helper()
	t.Parallel()
	s := serve(t)
	s.create(t, plants...)
	p := newPage(t, s.front)
	p.open(s.Token)
	return s, p
}

// openHurried is openConsole with a handler between the page and the product, and a fast clock on the page.
func openHurried(t *testing.T, handle func(http.ResponseWriter, *http.Request, http.Handler), plants ...string) (
	*service, *page) {
	t.Helper()
	t.Parallel()
	s := serve(t)
	s.create(t, plants...)
	s.intercept(t, handle)
	p := newPage(t, s.front)
	p.hurry()
	p.open(s.Token)
	return s, p
}

// intercept puts a handler between pages and the product.
func (s *service) intercept(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, product http.Handler)) {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	product := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {}, // The page cancelled the request.
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, product) }))
	t.Cleanup(server.Close)
	s.front = server.URL
}

// refuse responds as the service does to a token that exceeded its rate.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	w.WriteHeader(http.StatusTooManyRequests)
	fmt.Fprint(w, `{"error":42901,"message":"the token exceeded its rate"}`)
}

// issue issues a token.
func (s *service) issue(t *testing.T, args ...string) string {
	t.Helper()
	return testkit.IssueToken(t, s.db, args...)
}

// change sends a request that must succeed, as another client.
func (s *service) change(t *testing.T, method, path, body string) {
	t.Helper()
	if a, err := s.Send(method, path, body); err != nil || a.Status/100 != 2 {
		t.Fatalf("%s %s %s: %d %s, %v", method, path, body, a.Status, a.Body, err)
	}
}

// create stores plants without the page.
func (s *service) create(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		s.change(t, "POST", "/plants", body)
	}
}

// numbered returns plants with the ids 1 to n.
func numbered(n int) (bodies []string) {
	for _, id := range ids(1, n) {
		bodies = append(bodies, fmt.Sprintf(`{"id":%s,"name":"Plant %s","tag":""}`, id, id))
	}
	return bodies
}

// ids returns the numbers from first to last.
func ids(first, last int) (all []string) {
	for id := first; id <= last; id++ {
		all = append(all, fmt.Sprint(id))
	}
	return all
}

// want checks that plants are stored like this.
func (s *service) want(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		a, err := s.Send("GET", "/plants/"+idOf(body), "")
		if err != nil || a.Status != 200 || a.Body != body {
			t.Errorf("GET /plants/%s = %d %s, %v; want %s", idOf(body), a.Status, a.Body, err, body)
		}
	}
}

// idOf returns the id of a plant that the service wrote.
func idOf(plant string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(plant, `{"id":`), ",")
	return id
}

// wantNone checks that a plant is not stored.
func (s *service) wantNone(t *testing.T, id string) {
	t.Helper()
	if a, err := s.Send("GET", "/plants/"+id, ""); err != nil || a.Status != 404 {
		t.Errorf("GET /plants/%s = %d %s, %v; want 404", id, a.Status, a.Body, err)
	}
}
