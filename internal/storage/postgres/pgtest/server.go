package pgtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const timeout = time.Minute // of a start, a stop, a query or a condition

// Server is a PostgreSQL server on 127.0.0.1 and on a Unix socket. It keeps its port and its directory when
// it is started again.
type Server struct {
	Port int

	bin, dir string // dir has the Unix socket, too
	settings map[string]string
	shared   bool // used by several tests
	daemon
}

// start starts a server whose directory is in a folder. initdb takes seconds, so the files are copied from the shared
// server if there is one.
func start(bin, folder string, settings map[string]string) (*Server, error) {
	return newServer(bin, folder, settings, func(s *Server) error {
		from := shared.started.Load()
		if servers, _ := running(serverVariable, bin); from == nil && len(servers) > 0 {
			from = servers[0]
		}
		if from != nil && from.bin == bin {
			return run(asOwner(exec.Command("cp", "-R", from.initial(), s.data())))
		}
		return s.initdb(s.data())
	})
}

// startShared starts the shared server, and keeps a copy of its files as initdb has made them.
func startShared(bin string) (*Server, error) {
	s, err := newServer(bin, sharedFolder(), sharedSettings, func(s *Server) error {
		if err := s.initdb(s.initial()); err != nil {
			return err
		}
		return run(asOwner(exec.Command("cp", "-R", s.initial(), s.data())))
	})
	if err == nil {
		s.shared = true
	}
	return s, err
}

func (s *Server) initdb(dir string) error {
	return run(s.command("initdb", "-D", dir, "-U", User, "--pwfile", s.password(),
		"--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"))
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// newServer starts a server whose data directory is created by init.
func newServer(
	bin, folder string, settings map[string]string, init func(s *Server) error,
) (_ *Server, err error) {
	dir, err := os.MkdirTemp(folder, fmt.Sprintf("pgtest-%d-", os.Getpid())) // see sharedFolder
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, settings: settings}
	s.logFile = filepath.Join(dir, "log")
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if err := os.WriteFile(s.password(), []byte(Password), 0o600); err != nil {
		return nil, err
	}
	if err := changeOwner(dir, s.password()); err != nil {
		return nil, err
	}
	if err := init(s); err != nil {
		return nil, err
	}
	return s, s.startAnywhere()
}

// startAnywhere starts the server at a free port, and at another one if a process has taken the port before the server
// could.
func (s *Server) startAnywhere() (err error) {
	for range 10 {
		if s.Port, err = freePort(); err != nil {
			return err
		}
		if err = s.Start(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
		if err := os.Remove(s.logFile); err != nil { // the error of the next start is found in a new log
			return err
		}
	}
	return err
}

func (s *Server) data() string     { return filepath.Join(s.dir, "data") }
func (s *Server) initial() string  { return filepath.Join(s.dir, "initial") }
func (s *Server) password() string { return filepath.Join(s.dir, "password") }

// owner is the user of the servers, or nil for the user of this process. PostgreSQL refuses to run as root.
var owner = sync.OnceValues(func() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	c := new(syscall.Credential)
	_, err = fmt.Sscan(u.Uid+" "+u.Gid, &c.Uid, &c.Gid)
	return c, err
})

// changeOwner gives files to the user of the servers.
func changeOwner(paths ...string) error {
	c, err := owner()
	if err != nil || c == nil {
		return err
	}
	for _, path := range paths {
		if err := os.Chown(path, int(c.Uid), int(c.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// asOwner makes a command run as the user of the servers, and end with the thread that starts it, on systems that
// support this.
func asOwner(cmd *exec.Cmd) *exec.Cmd {
	c, _ := owner() // changeOwner has returned the error
	cmd.SysProcAttr = attributes(c)
	return cmd
}

// command returns a command that runs a program of PostgreSQL. The nodes of a cluster log in to each other with the
// password.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH"), "PGPASSWORD=" + Password}
	return asOwner(cmd)
}

// freePort returns a port below those that the system gives to other processes, so that a server that is
// stopped for a while can have its port again. Other tests use ports from 22500 on.
func freePort() (port int, err error) {
	for range 100 {
		port = 15000 + rand.IntN(7500)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// Start starts the server and returns when it accepts connections.
func (s *Server) Start() error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.dir, "-h", "127.0.0.1",
		"-c", "shared_buffers=32MB", "-c", "max_wal_size=256MB", "-c", "max_connections=400"}
	for name, value := range s.settings {
		args = append(args, "-c", name+"="+value)
	}
	return s.run(s.command("postgres", args...), func() error {
		_, err := s.Attempt("postgres", "SELECT 1")
		return err
	})
}

// Stop stops the server in PostgreSQL's fast mode: it ends the sessions and keeps what is committed.
func (s *Server) Stop() error { return s.end(syscall.SIGINT) }

// Kill9 kills the server with its child processes at once, as a crash of the machine does, and returns when all have
// ended. A child process that is not killed would complete its transaction.
func (s *Server) Kill9() error {
	if err := s.process.Signal(syscall.SIGSTOP); err != nil { // so that it starts no child process meanwhile
		return err
	}
	for deadline := time.Now().Add(timeout); !stopped(s.process.Pid) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	children := childrenOf(s.process.Pid)
	if err := s.signalAll(syscall.SIGKILL); err != nil {
		return err
	}
	if err := s.end(syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(timeout); slices.ContainsFunc(children, alive); {
		if time.Now().After(deadline) {
			return fmt.Errorf("child processes of a killed server still run after %v", timeout)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (s *Server) remove() error {
	var err error
	if s.process != nil {
		err = s.end(syscall.SIGQUIT)
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
