package testkit

import (
	"bytes"
	"fmt"
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
)

const FixedToken = "a-fixed-token-for-tests"

// Freeze stops the process where it is: a power cut ends the processor together with the disk. It must
// not see the cut, because a sync that is under way then may return success for what is not on disk.
func (p *Server) Freeze() {
	p.t.Helper()
	p.Cmd.Process.Signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(10 * time.Second); !p.frozen(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("the process has not stopped in 10 s")
		}
	}
}

// frozen reports whether no thread runs any more: each has stopped, waits for the disk and will stop
// before it goes on, or has ended.
func (p *Server) frozen() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Cmd.Process.Pid))
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err == nil && !bytes.ContainsAny(text[bytes.LastIndexByte(text, ')')+2:][:1], "TDZX") {
			return false
		}
	}
	return true
}

func StartAgain(t *testing.T, before *Server, db string) *Server {
	t.Helper()
	p := Start(t, db)
	p.Token = before.Token
	return p
}

func (p *Server) Running() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// StartFixed starts the product with a fixed token, which also the next start knows.
func StartFixed(t *testing.T, db string, args ...string) *Server {
	t.Helper()
	cmd := exec.Command(Binary, append([]string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+FixedToken)
	p := Launch(t, cmd)
	p.WaitUntilServing()
	p.Token = FixedToken
	return p
}

// Server is a running server.
type Server struct {
	t      *testing.T
	Cmd    *exec.Cmd
	URL    string // of the API
	Ops    string // of health
	Token  string // the first token, where it was issued by this start
	Stdout *Output
	Stderr *Output
	Ended  chan struct{}
	err    error // of Wait, once ended
}

// Start starts the product on a free port. It is killed at the end of the test.
func Start(t *testing.T, db string, args ...string) *Server {
	t.Helper()
	p := Launch(t, exec.Command(Binary, append([]string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, args...)...))
	p.WaitUntilServing()
	return p
}

// Launch starts a command as a server. It is killed at the end of the test.
func Launch(t *testing.T, cmd *exec.Cmd) *Server {
	t.Helper()
	watchSources()
	p := &Server{t: t, Cmd: cmd, Stdout: new(Output), Stderr: new(Output), Ended: make(chan struct{})}
	cmd.Stdout = p.Stdout
	if cmd.Stderr == nil {
		cmd.Stderr = p.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.Ended)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the server's log:\n%s", last(p.Stderr.String(), 4000))
		}
	})
	return p
}

var (
	ServingPattern = regexp.MustCompile(`Plant Store serves (\S+)\n`)
	healthPattern  = regexp.MustCompile(`"msg":"health","address":"([^"]+)"`)
	TokenPattern   = regexp.MustCompile(`\bplant_[0-9A-Za-z]{36}\b`)
)

// WaitUntilServing waits until the server is up, and for what it says of tokens: a first one, or how to get another.
func (p *Server) WaitUntilServing() {
	p.t.Helper()
	p.WaitUntilUp()
	if p.hasFixedToken() {
		return
	}
	for deadline := time.Now().Add(TokenDeadline); ; time.Sleep(time.Millisecond) {
		said := p.Stdout.String()
		if p.Token = TokenPattern.FindString(said); p.Token != "" || strings.Contains(said, "Another token") {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the server says nothing of a token in %v, only %q", TokenDeadline, said)
		}
	}
}

// TokenDeadline is how long a token may take after the log says that the server is up: it comes through another pipe,
// and on a busy machine the log can be read earlier.
const TokenDeadline = 10 * time.Second

// WaitUntilUp waits until the server is up. What it has printed until then can still be on its way.
func (p *Server) WaitUntilUp() {
	p.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(p.Stderr.String(), `"msg":"serving"`) || !ServingPattern.MatchString(p.Stdout.String()) {
		select {
		case <-p.Ended:
			p.t.Fatalf("the server ended: %v\n%s", p.err, p.Stderr)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the server is not up after 20 s:\n%s", p.Stderr)
		}
	}
	p.URL = ServingPattern.FindStringSubmatch(p.Stdout.String())[1]
	if m := healthPattern.FindStringSubmatch(p.Stderr.String()); m != nil {
		p.Ops = m[1]
	}
}

// hasFixedToken reports whether the server was started with a token, so that it says nothing of one.
func (p *Server) hasFixedToken() bool {
	return slices.ContainsFunc(slices.Concat(p.Cmd.Environ(), p.Cmd.Args), func(s string) bool {
		name, value, _ := strings.Cut(s, "=")
		return (name == "PLANTSTORE_TOKEN" || name == "PLANTSTORE_TOKEN_FILE") && value != "" || name == "--token-file" || s == FixedToken // a liar's
	})
}

// Kill ends the process as a crash would, and waits for its end.
func (p *Server) Kill() {
	p.Cmd.Process.Kill()
	<-p.Ended
}

// Stop asks the process to end and returns its exit code.
func (p *Server) Stop(within time.Duration) int {
	p.t.Helper()
	p.Cmd.Process.Signal(syscall.SIGTERM)
	return p.WaitExit(within)
}

func (p *Server) WaitExit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.Ended:
	case <-time.After(within):
		p.t.Fatalf("the server has not ended after %v\n%s", within, p.Stderr)
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Output collects what a process prints; it can be read while the process runs.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Truncate drops what was printed after the first n bytes.
func (o *Output) Truncate(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Truncate(n)
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// StartReplicas starts servers on one database. All know the first token.
func StartReplicas(t *testing.T, db string, n int) (all []*Server) {
	t.Helper()
	for range n {
		all = append(all, Start(t, db))
		all[len(all)-1].Token = all[0].Token
	}
	return all
}
