// Package browser tests the pages as a person has them: the real binary behind a real browser,
// Debian's Chromium, which has no network but the machine itself.
package browser

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"plantstore/internal/testkit"
)

// browser is the one that all tests share, nil where there is none.
var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if err := testkit.Build(); err != nil {
			return fail(err)
		}
		path, err := exec.LookPath("chromium")
		if err != nil {
			return m.Run() // each test that needs a page is skipped or fails
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

// startBrowser starts Chromium so that it works for root and speaks to this machine only.
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
		chromedp.WSURLReadTimeout(time.Minute), // it is slow to start on a busy machine
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
type service struct{ *testkit.Server }

// serve starts the product on a free port. It is ended with the test.
func serve(t *testing.T, args ...string) service {
	t.Helper()
	return service{testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), args...)}
}

// waitFor asks again and again whether something holds; the text tells what is there instead.
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

// create stores plants behind the page's back.
func (s service) create(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if a := s.Create(t, body); a.Status != 200 {
			t.Fatalf("create %s: %d %s", body, a.Status, a.Body)
		}
	}
}

// want holds one plant of the store, or its absence, to what is expected.
func (s service) want(t *testing.T, id string, status int, body string) {
	t.Helper()
	if a := s.Do(t, "GET", "/plants/"+id, ""); a.Status != status || status == 200 && a.Body != body {
		t.Errorf("GET /plants/%s = %d %s, want %d %s", id, a.Status, a.Body, status, body)
	}
}
