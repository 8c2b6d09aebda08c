// Package e2e tests the product as a user has it: the real binary, a real database, real sockets.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
)

// binary is the product, built once for all tests of the package.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(liarVariable) != "" {
		os.Exit(serveAsLiar(os.Args[1:]))
	}
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "plantstore-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		binary = filepath.Join(folder, "plantstore")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=v0.0.0-test", "-o", binary, "plantstore/cmd/plantstore")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the product: %v\n%s", err, out)
			return 1
		}
		return pgtest.Main(m)
	}())
}

// process is a running server.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string // of the API
	ops    string // of health
	token  string // the first token, where it was issued by this start
	stdout *output
	stderr *output
	ended  chan struct{}
	err    error // of Wait, once ended
}

// serve starts the product on a free port. It is killed at the end of the test.
func serve(t *testing.T, db string, args ...string) *process {
	t.Helper()
	p := launch(t, exec.Command(binary, append([]string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, args...)...))
	p.waitUntilServing()
	return p
}

func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stdout: new(output), stderr: new(output), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.stdout, p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the server's log:\n%s", last(p.stderr.String(), 4000))
		}
	})
	return p
}

var (
	serving = regexp.MustCompile(`Plant Store serves (\S+)\n`)
	health  = regexp.MustCompile(`"msg":"health","address":"([^"]+)"`)
	issued  = regexp.MustCompile(`\bplant_[0-9A-Za-z]{36}\b`)
)

// waitUntilServing waits until the server is up, and for what it says of tokens: a first one, or how to get another.
func (p *process) waitUntilServing() {
	p.t.Helper()
	p.waitUntilUp()
	if p.hasFixedToken() {
		return
	}
	for deadline := time.Now().Add(tokenPatience); ; time.Sleep(time.Millisecond) {
		said := p.stdout.String()
		if p.token = issued.FindString(said); p.token != "" || strings.Contains(said, "Another token") {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the server says nothing of a token in %v, only %q", tokenPatience, said)
		}
	}
}

// tokenPatience is how long a token may take after the log says that the server is up: it comes through another pipe,
// and on a busy machine the log can be read earlier.
const tokenPatience = 10 * time.Second

// waitUntilUp waits until the server is up. What it has printed until then can still be on its way.
func (p *process) waitUntilUp() {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(p.stderr.String(), `"msg":"serving"`) || !serving.MatchString(p.stdout.String()) {
		select {
		case <-p.ended:
			p.t.Fatalf("the server ended: %v\n%s", p.err, p.stderr)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the server is not up after 20 s:\n%s", p.stderr)
		}
	}
	p.url = serving.FindStringSubmatch(p.stdout.String())[1]
	if m := health.FindStringSubmatch(p.stderr.String()); m != nil {
		p.ops = m[1]
	}
}

// hasFixedToken reports whether the server was started with a token, so that it says nothing of one.
func (p *process) hasFixedToken() bool {
	return slices.ContainsFunc(slices.Concat(p.cmd.Environ(), p.cmd.Args), func(s string) bool {
		name, value, _ := strings.Cut(s, "=")
		return (name == "PLANTSTORE_TOKEN" || name == "PLANTSTORE_TOKEN_FILE") && value != "" || name == "--token-file" || s == fixedToken // a liar's
	})
}

// kill ends the process as a crash would, and waits for its end.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// stop asks the process to end and returns its exit code.
func (p *process) stop(within time.Duration) int {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	return p.exit(within)
}

func (p *process) exit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(within):
		p.t.Fatalf("the server has not ended after %v\n%s", within, p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
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

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// plantstore runs a command to its end.
func plantstore(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, append(os.Environ(), env...)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if strings.Contains(errs.String(), "goroutine ") {
		t.Errorf("plantstore %q printed a stack:\n%s", args, errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// answer is what a client sees of a response.
type answer struct {
	status int
	header http.Header
	body   string
}

// number is the catalogue number of an Error body, or 0.
func (a answer) number() int {
	var n int
	fmt.Sscanf(a.body, `{"error":%d,`, &n)
	return n
}

var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}

// ask sends a request as it is given: nothing is added to the headers but the credential, where
// there is none. The answer is held to the published description.
func (p *process) ask(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, p.url+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "" {
			r.Header.Del(name)
		} else {
			r.Header.Set(name, value)
		}
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	a := answer{response.StatusCode, response.Header, string(text)}
	hold(t, r, body, a)
	return a
}

const asJSON = "Content-Type: application/json"

func (p *process) create(t testing.TB, body string) answer {
	t.Helper()
	return p.ask(t, "POST", "/plants", body, asJSON)
}

// raw writes bytes to a new connection and returns everything that comes back.
func (p *process) raw(t testing.TB, request string) string {
	t.Helper()
	c := p.dial(t)
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(bufio.NewReader(c))
	return string(all)
}

// lacking ends a test that needs more than the machine gives: a failure where everything must be there, a loud
// skip elsewhere.
func lacking(t *testing.T, format string, args ...any) {
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

// converse makes one request with a token and reads the answer.
func converse(to, token, method, path, body string) (answer, error) {
	r, err := http.NewRequest(method, to+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}
