package lifecycle

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

var restarts = flag.Int("restarts", 5, "how often TestRollingRestart restarts the service on each engine")

// socket is a listener that outlives the servers that it is passed to, as with systemd.
type socket struct {
	t    *testing.T
	file *os.File
	url  string
}

func newSocket(t *testing.T) *socket {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &socket{t, file, "http://" + l.Addr().String()}
}

// passing is a command that starts the product with open files, as systemd passes them.
func passing(env string, files []*os.File, args ...string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{"-c", env + ` LISTEN_PID=$$ exec "$0" "$@"`, testkit.Binary}, args...)...)
	cmd.ExtraFiles = files
	return cmd
}

// serve starts a server on the socket.
func (s *socket) serve(db string) *testkit.Server {
	s.t.Helper()
	p := testkit.Launch(s.t, passing("LISTEN_FDS=1", []*os.File{s.file},
		"serve", "--db", db, "--listen", "192.0.2.1:1", "--ops-listen", "127.0.0.1:0"))
	p.WaitServing()
	if p.URL != s.url {
		s.t.Fatalf("serves %s, want the socket that was passed, %s", p.URL, s.url)
	}
	return p
}

// A service that is restarted repeatedly under load refuses no connection, resets none and drops no request: clients
// that keep their connections and never retry get only 200.
//
// On a database server the next process serves before the previous one stops, as with replicas. A SQLite file has one
// process at a time, as with systemctl restart: requests in between wait in the socket.
func TestRollingRestart(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db, s := e.Database(t), newSocket(t)
			now := s.serve(db)
			load := offer(t, s.url, now.Token)
			load.wait(100)
			start := time.Now()
			for range *restarts {
				last := now
				if e.Name != "sqlite" {
					now = s.serve(db)
				}
				last.Signal(syscall.SIGTERM)
				if e.Name == "sqlite" {
					last.WaitExit()
					now = s.serve(db)
				}
				load.wait(100)
				if code := last.WaitExit(); code != 0 {
					t.Errorf("exit %d\n%s", code, last.Stderr)
				}
			}
			took := time.Since(start)
			load.stop()
			for i, failure := range load.failures {
				if i < 5 {
					t.Error(failure)
				}
			}
			if n := len(load.failures); n > 0 {
				t.Errorf("%d of %d requests failed", n, load.responses.Load())
			}
			now.Token = load.token
			created := load.created.Load()
			count := now.Do(t, "GET", "/plants?limit=1", "", "Prefer: count=exact").Header.Get("Plants-Count")
			if count != fmt.Sprint(created) {
				t.Errorf("%s plants are stored, want the %d that were acknowledged", count, created)
			}
			t.Logf("%d restarts in %v: %d requests, %d failed, %d repeated, %d connections, the slowest response after %v",
				*restarts, took.Round(time.Millisecond), load.responses.Load(), len(load.failures), load.repeated.Load(),
				load.dialled.Load(), time.Duration(load.slowest.Load()).Round(time.Millisecond))
		})
	}
}

const (
	offeredRate    = 500 // requests a second, whether or not earlier ones have a response
	offeredClients = 32  // each with one connection that it keeps
)

// errClosedIdle is the error of a request that was sent while the server closed a connection that was idle for long
// because this process had paused. Neither end can know, so every connection pool repeats such a request.
var errClosedIdle = errors.New("closed while idle")

// offered is load at a fixed rate from clients that keep their connections and repeat a request only after
// errClosedIdle.
type offered struct {
	t           *testing.T
	host, token string
	due         chan time.Time
	end         chan struct{}
	clients     sync.WaitGroup

	next, responses, created, dialled, repeated, slowest atomic.Int64

	mu       sync.Mutex
	failures []string
}

func offer(t *testing.T, url, token string) *offered {
	t.Helper()
	o := &offered{
		t: t, host: strings.TrimPrefix(url, "http://"), token: token,
		due: make(chan time.Time, 100*offeredRate), end: make(chan struct{}),
	}
	o.clients.Go(func() {
		defer close(o.due)
		for at := time.Now(); ; at = at.Add(time.Second / offeredRate) {
			select {
			case <-o.end:
				return
			case <-time.After(time.Until(at)):
				o.due <- at
			}
		}
	})
	for range offeredClients {
		o.clients.Go(o.client)
	}
	t.Cleanup(o.stop)
	return o
}

func (o *offered) stop() {
	select {
	case <-o.end:
	default:
		close(o.end)
	}
	o.clients.Wait()
}

// wait waits until so many more requests have a response.
func (o *offered) wait(more int64) {
	o.t.Helper()
	want := o.responses.Load() + more
	testkit.WaitFor(o.t, fmt.Sprintf("%d more responses", more), func() bool { return o.responses.Load() >= want })
}

func (o *offered) client() {
	var c net.Conn
	var in *bufio.Reader
	var last time.Time // when the last response arrived on the connection
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	send := func(id int64) (err error) {
		if c == nil {
			if c, err = net.Dial("tcp", o.host); err != nil {
				return err
			}
			o.dialled.Add(1)
			in, last = bufio.NewReader(c), time.Time{}
		}
		c.SetDeadline(time.Now().Add(testkit.Deadline))
		final, err := o.exchange(c, in, id, last)
		last = time.Now()
		if err != nil || final {
			c.Close()
			c = nil
		}
		return err
	}
	for at := range o.due {
		if c != nil && hungUp(c) {
			c.Close()
			c = nil
		}
		id := o.next.Add(1)
		err := send(id)
		if errors.Is(err, errClosedIdle) {
			o.repeated.Add(1)
			err = send(id)
		}
		if err != nil {
			o.mu.Lock()
			o.failures = append(o.failures, err.Error())
			o.mu.Unlock()
		}
		o.responses.Add(1)
		for took := int64(time.Since(at)); ; {
			if slowest := o.slowest.Load(); took <= slowest || o.slowest.CompareAndSwap(slowest, took) {
				break
			}
		}
	}
}

// exchange sends a request, mostly a create, and expects 200. before is when the last response arrived on the
// connection, or zero. It reports whether the server closes the connection.
func (o *offered) exchange(c net.Conn, in *bufio.Reader, id int64, before time.Time) (last bool, err error) {
	request := "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
	switch id % 8 {
	case 0:
	case 1:
		request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n" // a page, which is not part of the API
	default:
		body := fmt.Sprintf(`{"id":%d,"name":"x"}`, id)
		request = fmt.Sprintf("POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", o.token, len(body), body)
	}
	_, err = io.WriteString(c, request)
	idle := !before.IsZero() && time.Since(before) > testkit.LongIdle
	if err == nil {
		_, err = in.Peek(1)
	}
	if idle && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return true, fmt.Errorf("request %d: %w: %w", id, errClosedIdle, err)
	}
	if err != nil {
		return true, fmt.Errorf("request %d: no response: %w", id, err)
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return true, fmt.Errorf("request %d: receive: %w", id, err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		return true, fmt.Errorf("request %d: %d %.200s %w", id, response.StatusCode, body, err)
	}
	if id%8 > 1 {
		o.created.Add(1)
	}
	return response.Close, nil
}

// hungUp reports whether the server has closed an idle connection, as every connection pool checks before reuse.
func hungUp(c net.Conn) (up bool) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		up = !errors.Is(err, syscall.EAGAIN)
		return true
	})
	return up || err != nil
}

// A passed file descriptor that is not a TCP listener is refused with one sentence. Descriptors for another process are
// ignored.
func TestPassedSockets(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	file, datagrams, unix := notListeners(t)
	one, two := newSocket(t), newSocket(t)
	for _, test := range []struct {
		what, env string
		files     []*os.File
		want      string
	}{
		{"a file", "LISTEN_FDS=1", []*os.File{file}, "descriptor 3 of LISTEN_FDS is not a TCP listener"},
		{"a UDP socket", "LISTEN_FDS=1", []*os.File{datagrams}, "not a TCP listener"},
		{"a Unix socket", "LISTEN_FDS=1", []*os.File{unix}, "not a TCP listener: it listens on unix"},
		{"nothing", "LISTEN_FDS=1", nil, "not a TCP listener"},
		{"not a number", "LISTEN_FDS=all", nil, "must be 1 or 2"},
		{"three", "LISTEN_FDS=3", []*os.File{one.file, two.file, file}, "must be 1 or 2"},
		{"one name twice", "LISTEN_FDS=2 LISTEN_FDNAMES=ops:ops", []*os.File{one.file, two.file}, "once each"},
	} {
		p := testkit.Launch(t, passing(test.env, test.files,
			"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "off"))
		code, printed := p.WaitExit(), p.Stderr.String()
		if code != 1 || strings.Count(printed, "\n") != 1 || !strings.Contains(printed, test.want) {
			t.Errorf("%s: exit %d, %q; want 1 and %q", test.what, code, printed, test.want)
		}
	}
	for _, test := range []struct{ env, public, ops string }{
		{"LISTEN_FDS=2", one.url, two.url},
		{"LISTEN_FDS=2 LISTEN_FDNAMES=plantstore.socket:plantstore.socket", one.url, two.url},
		{"LISTEN_FDS=2 LISTEN_FDNAMES=ops:http", two.url, one.url},
	} {
		p := testkit.Launch(t, passing(test.env, []*os.File{one.file, two.file},
			"serve", "--db", db, "--listen", "192.0.2.1:1", "--ops-listen", "192.0.2.1:1"))
		p.WaitServing()
		if p.URL != test.public || p.Ops != test.ops {
			t.Errorf("%s: serves %s and health %s, want %s and %s", test.env, p.URL, p.Ops, test.public, test.ops)
		}
		p.Health(t, "/livez")
		p.Kill()
	}
	other := testkit.Serve(db, "--ops-listen", "off")
	other.Env, other.ExtraFiles = append(os.Environ(), "LISTEN_PID=1", "LISTEN_FDS=1"), []*os.File{one.file}
	p := testkit.Launch(t, other)
	p.WaitServing()
	if p.URL == one.url {
		t.Error("a socket for another process is used")
	}
}

// notListeners are files that are not TCP listeners.
func notListeners(t *testing.T) (file, datagrams, unix *os.File) {
	t.Helper()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packets.Close() })
	datagrams, err = packets.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { datagrams.Close() })
	local, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	unix, err = local.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close() })
	return file, datagrams, unix
}
