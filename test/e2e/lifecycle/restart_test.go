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

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
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

// Two passed sockets are for the service and for health checks. A file that is not a TCP listener is refused with one
// sentence.
func TestPassedSockets(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	one, two := newSocket(t), newSocket(t)
	p := testkit.Launch(t, passing("LISTEN_FDS=2 LISTEN_FDNAMES=ops:http", []*os.File{one.file, two.file},
		"serve", "--db", db, "--listen", "192.0.2.1:1", "--ops-listen", "192.0.2.1:1"))
	p.WaitServing()
	if p.URL != two.url || p.Ops != one.url {
		t.Errorf("serves %s and health %s, want %s and %s", p.URL, p.Ops, two.url, one.url)
	}
	p.Health(t, "/livez")
	p.Kill()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p = testkit.Launch(t, passing("LISTEN_FDS=1", []*os.File{file}, "serve", "--db", db, "--ops-listen", "off"))
	const want = "descriptor 3 of LISTEN_FDS is not a TCP listener"
	if code, printed := p.WaitExit(), p.Stderr.String(); code != 1 || strings.Count(printed, "\n") != 1 ||
		!strings.Contains(printed, want) {
		t.Errorf("a file: exit %d, %q; want 1 and %q", code, printed, want)
	}
}
