// Package browser tests the pages as a person has them: the real binary behind a real browser,
// Debian's Chromium, which has no network but the machine itself.
package browser

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var (
	binary  string          // the product, built once for all tests of the package
	browser context.Context // one browser for all of them, nil where there is none
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "plantstore-browser-")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(folder)
		binary = filepath.Join(folder, "plantstore")
		build := exec.Command("go", "build", "-trimpath", "-o", binary, "plantstore/cmd/plantstore")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fail(fmt.Errorf("build the product: %w\n%s", err, out))
		}

		if path, err := exec.LookPath("chromium"); err == nil {
			stop, err := startBrowser(path, filepath.Join(folder, "profile"))
			if err != nil {
				return fail(fmt.Errorf("start %s: %w", path, err))
			}
			defer stop()
		}
		return m.Run()
	}())
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// lookAtSources walks over what the product is built from. go test notes what a test looks at;
// without this it would take an old result from its cache after a change of a page.
var lookAtSources = sync.OnceFunc(func() {
	for _, folder := range []string{"../../api", "../../cmd", ".."} {
		filepath.WalkDir(folder, func(string, fs.DirEntry, error) error { return nil })
	}
})

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

// missing ends a test that lacks something of the machine: a failure where everything must be
// there, a loud skip elsewhere.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	message := fmt.Sprintf("NOT TESTED: %s: %s", t.Name(), fmt.Sprintf(format, args...))
	// go test shows what a package prints only where it fails: make test shows this file.
	if f, err := os.OpenFile(os.Getenv("PLANTSTORE_NOT_TESTED"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		fmt.Fprintln(f, message)
		f.Close()
	}
	t.Skip(message)
}

// service is a running product with a store of its own.
type service struct {
	url   string
	token string
}

var (
	serving = regexp.MustCompile(`Plant Store serves (\S+)\n`)
	issued  = regexp.MustCompile(`\bplant_[0-9A-Za-z]{36}\b`)
)

// serve starts the product on a free port. It is ended with the test.
func serve(t *testing.T, args ...string) *service {
	t.Helper()
	lookAtSources()
	db := filepath.Join(t.TempDir(), "plants.db")
	cmd := exec.Command(binary, append([]string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, args...)...)
	var stdout, stderr output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			log := stderr.String()
			t.Logf("the server's log:\n%s", log[max(0, len(log)-2000):])
		}
	})
	var m []string
	var token string
	waitFor(t, 20*time.Second, "the server to be up", func() (bool, string) {
		// The log comes through another pipe than the address and the token: each can be read before the others.
		m, token = serving.FindStringSubmatch(stdout.String()), issued.FindString(stdout.String())
		return m != nil && token != "" && strings.Contains(stderr.String(), `"msg":"serving"`), stdout.String() + stderr.String()
	})
	return &service{url: m[1], token: token}
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

// output collects what a process prints; it can be read while the process runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// send makes a request behind the page's back.
func (s *service) send(ctx context.Context, method, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func (s *service) ask(t *testing.T, method, path, body string) (status int, answer string) {
	t.Helper()
	status, answer, err := s.send(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

// create stores plants behind the page's back.
func (s *service) create(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		if status, answer := s.ask(t, "POST", "/plants", body); status != 200 {
			t.Fatalf("create %s: %d %s", body, status, answer)
		}
	}
}

// want holds one plant of the store, or its absence, to what is expected.
func (s *service) want(t *testing.T, id string, status int, body string) {
	t.Helper()
	if gotStatus, got := s.ask(t, "GET", "/plants/"+id, ""); gotStatus != status || status == 200 && got != body {
		t.Errorf("GET /plants/%s = %d %s, want %d %s", id, gotStatus, got, status, body)
	}
}
