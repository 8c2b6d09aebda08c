package testkit

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// FixedToken is a token for servers whose token the test chooses.
const FixedToken = "a-fixed-token-for-tests"

// Server is a process that serves, or has served.
type Server struct {
	Cmd    *exec.Cmd
	URL    string // the address of the API
	Ops    string // the address of health checks; empty if they are off
	Token  string // a valid token, if this start issued one
	Stdout *Output
	Stderr *Output
	Ended  chan struct{} // closed when the process has ended and its output is complete

	t   testing.TB
	err error // from Wait, once ended
}

// Start starts the product on free ports and waits until it serves. It is killed at the end of the test.
func Start(t testing.TB, db string, args ...string) *Server {
	t.Helper()
	s := Launch(t, Serve(db, args...))
	s.WaitServing()
	return s
}

// StartAgain starts the product on a database that an earlier server issued its token in.
func StartAgain(t *testing.T, earlier *Server, db string, args ...string) *Server {
	t.Helper()
	s := Start(t, db, args...)
	s.Token = earlier.Token
	return s
}

// StartFixed starts the product with FixedToken, which is valid after a restart too.
func StartFixed(t *testing.T, db string, args ...string) *Server {
	t.Helper()
	cmd := Serve(db, args...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_FIXED_TOKEN="+FixedToken)
	s := Launch(t, cmd)
	s.WaitServing()
	s.Token = FixedToken
	return s
}

// StartReplicas starts a server at each address of one database. They all have the token of the first.
func StartReplicas(t *testing.T, addresses []string) (all []*Server) {
	t.Helper()
	for _, db := range addresses {
		all = append(all, Start(t, db))
		all[len(all)-1].Token = all[0].Token
	}
	return all
}

// Serve is the command that Start runs. Later arguments override the free ports.
func Serve(db string, args ...string) *exec.Cmd {
	fixed := []string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}
	return exec.Command(Binary, append(fixed, args...)...)
}

// Launch starts a command and does not wait for it to serve. It is killed at the end of the test.
func Launch(t testing.TB, cmd *exec.Cmd) *Server {
	t.Helper()
	watchSources()
	s := &Server{t: t, Cmd: cmd, Stdout: new(Output), Stderr: new(Output), Ended: make(chan struct{})}
	cmd.Stdout = s.Stdout
	if cmd.Stderr == nil {
		cmd.Stderr = s.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.err = cmd.Wait()
		close(s.Ended)
	}()
	t.Cleanup(func() {
		s.Kill()
		if log := s.Stderr.String(); t.Failed() {
			t.Logf("the server's log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	return s
}

// TokenPattern matches an issued token.
var TokenPattern = regexp.MustCompile(`\bplant_[0-9A-Za-z]{36}\b`)

var (
	servingPattern = regexp.MustCompile(`Plant Store serves (\S+)\n`)
	healthPattern  = regexp.MustCompile(`"msg":"ops port","address":"([^"]+)"`)
)

// WaitServing waits until the server serves and has printed its first token or how to issue another.
func (s *Server) WaitServing() {
	s.t.Helper()
	s.WaitListening()
	if s.hasFixedToken() {
		return
	}
	// The token arrives through another pipe than the log, possibly later.
	WaitFor(s.t, "the server to print a token", func() bool {
		printed := s.Stdout.String()
		s.Token = TokenPattern.FindString(printed)
		return s.Token != "" || strings.Contains(printed, "Another token")
	})
}

// WaitListening waits until the server has printed its address and, unless its log is redirected, that it serves.
func (s *Server) WaitListening() {
	s.t.Helper()
	WaitFor(s.t, "the server to serve", func() bool {
		listening := servingPattern.MatchString(s.Stdout.String()) &&
			(s.Cmd.Stderr != s.Stderr || strings.Contains(s.Stderr.String(), `"msg":"serving"`))
		if !listening && !s.Running() {
			s.t.Fatalf("the server ended: %v\n%s", s.err, s.Stderr)
		}
		return listening
	})
	s.URL = servingPattern.FindStringSubmatch(s.Stdout.String())[1]
	if m := healthPattern.FindStringSubmatch(s.Stderr.String()); m != nil {
		s.Ops = m[1]
	}
}

// hasFixedToken reports whether the server was started with a token and therefore prints none.
func (s *Server) hasFixedToken() bool {
	return slices.ContainsFunc(slices.Concat(s.Cmd.Environ(), s.Cmd.Args), func(setting string) bool {
		name, value, _ := strings.Cut(setting, "=")
		environment := (name == "PLANTSTORE_FIXED_TOKEN" || name == "PLANTSTORE_FIXED_TOKEN_FILE") && value != ""
		return environment || name == "--token-file" || setting == FixedToken
	})
}

// Running reports whether the process has not ended.
func (s *Server) Running() bool {
	select {
	case <-s.Ended:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL, as a crash would, and waits until its output is complete.
func (s *Server) Kill() {
	s.Cmd.Process.Kill()
	<-s.Ended
}

// Signal sends a signal to the process.
func (s *Server) Signal(signal syscall.Signal) { s.Cmd.Process.Signal(signal) }

// Stop sends SIGTERM and returns the exit code.
func (s *Server) Stop() int {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	return s.WaitExit()
}

// WaitExit waits for the end of the process and returns its exit code.
func (s *Server) WaitExit() int {
	s.t.Helper()
	select {
	case <-s.Ended:
	case <-time.After(Deadline):
		s.t.Fatalf("the server has not ended after %v\n%s", Deadline, s.Stderr)
	}
	return s.Cmd.ProcessState.ExitCode()
}

// Output collects what a process prints. It can be read while the process runs.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends b.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

// String is everything printed so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Truncate drops everything after the first n bytes.
func (o *Output) Truncate(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Truncate(n)
}
