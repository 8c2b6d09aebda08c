// Package browser tests the pages of the real binary in a real browser, Debian's Chromium, which can reach only this
// machine.
package browser

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"plantstore/internal/testkit"
)

// browser is the browser that all tests share, or nil if none is installed.
var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if err := testkit.Build(); err != nil {
			return fail(err)
		}
		path, err := exec.LookPath("chromium")
		if err != nil {
			return m.Run() // A test that needs a page is skipped, or fails in CI.
		}
		profile, err := os.MkdirTemp("", "plantstore-browser-")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(profile)
		stop, err := startBrowser(path, profile)
		if err != nil {
			return fail(fmt.Errorf("start %s: %w", path, err))
		}
		defer stop()
		return m.Run()
	}())
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// startBrowser starts Chromium so that it works for root and reaches only this machine.
func startBrowser(path, profile string) (stop func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(profile),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(time.Minute), // Its start is slow on a busy machine.
	)
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stop = func() {
		cancel()
		stopAllocator()
	}
	if err := chromedp.Do(ctx); err != nil {
		stop()
		return nil, err
	}
	browser = ctx
	return stop, nil
}

// service is a running product with a store of its own.
type service struct {
	*testkit.Server
	db string
}

// serve starts the product with a new database.
func serve(t *testing.T, args ...string) service {
	t.Helper()
	db := filepath.Join(t.TempDir(), "plants.db")
	return service{testkit.Start(t, db, args...), db}
}

// proxy serves the product through a handler that may change requests and responses.
func (s service) proxy(t *testing.T, wrap func(forward http.Handler) http.Handler) (address string) {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {}, // the page cancelled the request
	}
	server := httptest.NewServer(wrap(forward))
	t.Cleanup(server.Close)
	return server.URL
}

// refuse responds as the service does to a token that exceeded its rate. A page must not wait so briefly that a slow
// machine misses it.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	w.WriteHeader(http.StatusTooManyRequests)
	fmt.Fprint(w, `{"error":42901,"message":"the token exceeded its rate"}`)
}

// waitFor waits until a condition holds. found describes the current state for the error.
func waitFor(t *testing.T, limit time.Duration, what string, holds func() (ok bool, found string)) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		ok, found := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s; found %s", limit, what, cmp.Or(found[:min(len(found), 2000)], "nothing"))
		}
	}
}

// create stores plants without the page.
func (s service) create(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if a := s.Create(t, body); a.Status != 200 {
			t.Fatalf("create %s: %d %s", body, a.Status, a.Body)
		}
	}
}

// want checks that a plant is stored like this, or that reading it returns another status.
func (s service) want(t *testing.T, id string, status int, body string) {
	t.Helper()
	if a := s.Do(t, "GET", "/plants/"+id, ""); a.Status != status || status == 200 && a.Body != body {
		t.Errorf("GET /plants/%s = %d %s, want %d %s", id, a.Status, a.Body, status, body)
	}
}
