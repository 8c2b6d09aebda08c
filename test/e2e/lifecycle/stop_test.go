package lifecycle

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// A request that has started when SIGTERM arrives gets its response: one with part of its headers or of its body sent,
// on a new connection or on a used one, or pipelined after another request.
func TestDrain(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, wantDrain, longDrain...)
	t.Run("TLS", func(t *testing.T) {
		wantDrain(t, testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), append(longDrain, testkit.TLS(t)...)...))
	})
}

var longDrain = []string{"--drain", "1m"}

func wantDrain(t *testing.T, s *testkit.Server) {
	t.Helper()
	partial := startRequests(t, s)
	idle := s.Dial(t)
	defer idle.Close()
	waitRead(t, s)
	s.Signal(syscall.SIGTERM)
	waitStopping(t, s)
	for _, p := range partial {
		if p.anonymous {
			p.finish(t)
		}
	}
	testkit.WaitFor(t, "/readyz to report that the server is stopping", func() bool {
		status, body := s.Health(t, "/readyz")
		return status == 503 && strings.Contains(body, "stopping")
	})
	testkit.WaitFor(t, "new connections to be refused", func() bool {
		c, err := net.Dial("tcp", s.Address())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if n, err := idle.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("a connection without a request while stopping: %d bytes, %v, want EOF", n, err)
	}
	for _, p := range partial {
		if !p.anonymous {
			p.finish(t)
		}
	}
	if code := s.WaitExit(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.Stderr)
	}
}

// partialRequest is a request of which a part has been sent.
type partialRequest struct {
	what      string
	conn      net.Conn
	rest      string
	sent      time.Time
	anonymous bool // no token has been sent on the connection
}

// finish sends the rest, which must get a response. A drain does not wait longer than two seconds for one that is
// anonymous.
func (p partialRequest) finish(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(p.conn, p.rest)
	var response *http.Response
	if err == nil {
		response, err = http.ReadResponse(bufio.NewReader(p.conn), nil)
	}
	switch {
	case err != nil && p.anonymous && time.Since(p.sent) > 2*time.Second:
		t.Logf("%s, finished %v later: %v", p.what, time.Since(p.sent), err)
	case err != nil || response.StatusCode != 200:
		t.Errorf("%s: %v, %v", p.what, response, err)
	case !response.Close:
		t.Errorf("%s: the response has no Connection: close", p.what)
	}
}

// startRequests sends parts of requests.
func startRequests(t *testing.T, s *testkit.Server) (all []partialRequest) {
	t.Helper()
	for n, before := range []string{"a request", "a request in the same packet", "nothing"} {
		for i, cut := range []int{10, 60, len(s.RawCreate(1)) - 5} {
			c := s.Dial(t)
			t.Cleanup(func() { c.Close() })
			text, complete, sent := s.RawCreate(10*i+n), s.RawCreate(100+i), time.Now()
			switch before {
			case "nothing":
				io.WriteString(c, text[:cut])
			case "a request":
				io.WriteString(c, complete)
				wantOK(t, c)
				io.WriteString(c, text[:cut])
			default:
				io.WriteString(c, complete+text[:cut])
				wantOK(t, c)
			}
			what := fmt.Sprintf("%d bytes sent after %s", cut, before)
			all = append(all, partialRequest{what, c, text[cut:], sent, before == "nothing"})
		}
	}
	return all
}

func wantOK(t *testing.T, c net.Conn) {
	t.Helper()
	if response, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || response.StatusCode != 200 {
		t.Fatalf("response %v, %v, want 200", response, err)
	}
}

// dialUsed opens a connection and sends a request with a token on it: a drain waits longer for the next one.
func dialUsed(t *testing.T, s *testkit.Server) net.Conn {
	t.Helper()
	c := s.Dial(t)
	t.Cleanup(func() { c.Close() })
	io.WriteString(c, s.RawCreate(1))
	wantOK(t, c)
	return c
}

// waitRead waits until the server has accepted every connection and has read everything that was sent to it.
func waitRead(t *testing.T, s *testkit.Server) {
	t.Helper()
	testkit.WaitFor(t, "the server to read from its connections", func() bool {
		return !slices.ContainsFunc(s.Sockets(t), func(fields []string) bool {
			queues, inode := fields[4], fields[9]
			return !strings.HasSuffix(queues, ":00000000") || inode == "0" // Without an inode it is not accepted.
		})
	})
	time.Sleep(20 * time.Millisecond) // until the server has processed what it has read
}

// waitStopping waits until the server has logged that it is stopping.
func waitStopping(t *testing.T, s *testkit.Server) {
	t.Helper()
	testkit.WaitFor(t, "the server to stop", func() bool { return !s.LoggedAt("stopping").IsZero() })
}

// A request that never ends is cut off after --drain, and the exit code is 1.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--drain", "1s")
	c := dialUsed(t, s)
	io.WriteString(c, "POST /plants HTTP/1.1\r\nHost: x\r\n")
	waitRead(t, s)
	code := s.Stop()
	took := time.Since(s.LoggedAt("stopping"))
	if code != 1 || took < 900*time.Millisecond || took > 8*time.Second { // The default is 10 s.
		t.Errorf("a request that never ends: exit %d after %v, want 1 after a second", code, took)
	}
	if !strings.Contains(s.Stderr.String(), "cut off") {
		t.Errorf("the log does not mention that a request was cut off:\n%s", s.Stderr)
	}
}

// A second signal ends the process at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--drain", "10m")
	c := dialUsed(t, s)
	io.WriteString(c, "POST /plants HTTP/1.1\r\nHost: x\r\n")
	waitRead(t, s)
	s.Signal(syscall.SIGINT)
	waitStopping(t, s)
	testkit.WaitFor(t, "the server to end", func() bool {
		// The kernel merges signals that arrive together, so it is sent again.
		s.Signal(syscall.SIGINT)
		time.Sleep(50 * time.Millisecond)
		return !s.Running()
	})
	if status := s.Cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v, want the second signal", s.Cmd.ProcessState)
	}
}

// SIGHUP stops the service like SIGTERM. A terminal may send it several times; that does not end the process early.
func TestHangup(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--drain", "10m")
	c := dialUsed(t, s)
	request := s.RawCreate(1)
	io.WriteString(c, request[:60])
	waitRead(t, s)
	s.Signal(syscall.SIGHUP)
	waitStopping(t, s)
	for range 10 {
		s.Signal(syscall.SIGHUP)
		time.Sleep(10 * time.Millisecond)
	}
	io.WriteString(c, request[60:])
	wantOK(t, c)
	if code := s.WaitExit(); code != 0 || !strings.Contains(s.Stderr.String(), `"reason":"hangup signal received"`) {
		t.Errorf("exit %d\n%s", code, s.Stderr)
	}
}

// Under nohup, SIGHUP has no effect.
func TestNohup(t *testing.T) {
	t.Parallel()
	serve := testkit.Serve(filepath.Join(t.TempDir(), "plants.db"))
	s := testkit.Launch(t, exec.Command("nohup", serve.Args...))
	s.WaitServing()
	s.Signal(syscall.SIGHUP)
	if a := s.Create(t, `{"id":1,"name":"x"}`); a.Status != 200 {
		t.Errorf("after SIGHUP: %d %s", a.Status, a.Body)
	}
	if code := s.Stop(); code != 0 || strings.Contains(s.Stderr.String(), "hangup") {
		t.Errorf("exit %d\n%s", code, s.Stderr)
	}
}

// The first signal ends a start that waits for a database that never responds.
func TestStopWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(testkit.Deadline))
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		s := testkit.Launch(t, testkit.Serve("postgres://x@"+l.Addr().String()+"/x?sslmode=disable&connect_timeout=3600"))
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s.Signal(signal)
		want := `"reason":"` + signal.String() + ` signal received before the service was ready"`
		if code := s.WaitExit(); code != 0 || !strings.Contains(s.Stderr.String(), want) {
			t.Errorf("%v: exit %d\n%s", signal, code, s.Stderr)
		}
	}
}
