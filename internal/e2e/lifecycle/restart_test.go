package lifecycle

import (
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/ledger"
)

var restarts = flag.Int("restarts", 3, "how often TestRollingRestart restarts the service on each engine")

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
// that keep their connections and never retry get only the responses of a service that runs.
//
// On a database server the next process serves before the previous one stops, as with replicas. A SQLite file has one
// process at a time, as with systemctl restart: requests in between wait in the socket.
func TestRollingRestart(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db, s := e.Database(t), newSocket(t)
			now := s.serve(db)
			target, l := now.Target(), ledger.New()
			stop := l.Start(t, ledger.Options{Rate: 500}, target)
			l.Wait(t, 100)
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
				l.Wait(t, 100)
				if code := last.WaitExit(); code != 0 {
					t.Errorf("exit %d\n%s", code, last.Stderr)
				}
			}
			stop()
			if all := l.Responses(); l.Failed() > 0 {
				t.Errorf("%d of the requests failed: %v", l.Failed(), all)
			}
			l.CheckMany(t, target)
		})
	}
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
