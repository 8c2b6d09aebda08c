// Package pgtest gives tests a PostgreSQL of their own: a real server in a temporary folder,
// which is gone when the test binary is.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The superuser of every server. Over TCP its password is asked for, over the socket it is not.
const (
	User     = "postgres"
	Password = "not-to-be-seen"
)

const patience = 30 * time.Second // for a server to start or to stop

// Main runs the tests of a package, stops the server that they shared, and returns the exit code.
// Call it from TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.remove(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
	}
	return code
}

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared is the one server that the tests of a package share, started when it is first asked for.
// It needs Main. A test that stops or locks a server uses Start.
func Shared(t testing.TB) *Server {
	t.Helper()
	bin := binaries(t)
	shared.once.Do(func() { shared.server, shared.err = start(bin, nil) })
	if shared.err != nil {
		t.Fatal("start a PostgreSQL: ", shared.err)
	}
	return shared.server
}

// Database makes an empty database on the shared server and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return Shared(t).Database(t)
}

// Start starts a server for one test, with the settings given, and stops it when the test ends.
func Start(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	s, err := start(binaries(t), settings)
	return forTest(t, s, err)
}

// Standby starts a server for one test that follows another, from a copy of it, until it is promoted
// or the settings that the copy brought are changed. Commits do not wait for it unless the other is
// told to.
func Standby(t testing.TB, of *Server) *Server {
	t.Helper()
	s, err := follow(of)
	return forTest(t, s, err)
}

func forTest(t testing.TB, s *Server, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatal("start a PostgreSQL: ", err)
	}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Server is a PostgreSQL on 127.0.0.1 and on a unix socket. Its port and its folder stay the same
// when it is started again. fsync is on unless the settings say otherwise.
type Server struct {
	Port   int
	Socket string // the folder of the unix socket

	bin, folder string
	settings    map[string]string
	owner       *syscall.Credential
	databases   atomic.Int64

	process *os.Process
	exited  chan struct{} // closed when the postmaster has ended
}

// binaries finds the folder of the server's programs.
func binaries(t testing.TB) string {
	t.Helper()
	var folders []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(out)))
	}
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(installed) // the newest first
	for _, folder := range append(folders, installed...) {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err == nil {
			return folder
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no PostgreSQL on this machine: install the package postgresql")
	}
	t.Skip("NOT TESTED: there is no PostgreSQL on this machine; `make test` installs it")
	return ""
}

func start(bin string, settings map[string]string) (*Server, error) {
	return build(bin, settings, func(s *Server) *exec.Cmd {
		return s.command("initdb", "-D", s.data(), "-U", User, "--pwfile", s.password(),
			"--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync")
	})
}

func follow(of *Server) (*Server, error) {
	return build(of.bin, of.settings, func(s *Server) *exec.Cmd {
		return s.command("pg_basebackup", "-D", s.data(), "-d", of.SocketURL("postgres"),
			"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	})
}

// build makes a server whose data a command fills, and starts it.
func build(bin string, settings map[string]string, fill func(s *Server) *exec.Cmd) (_ *Server, err error) {
	folder, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	s := &Server{Socket: folder, bin: bin, folder: folder, settings: settings}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.remove())
		}
	}()
	if err := os.WriteFile(s.password(), []byte(Password), 0o600); err != nil {
		return nil, err
	}
	if err := s.giveAway(folder, s.password()); err != nil {
		return nil, err
	}
	cmd := fill(s)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd.Path, err, out)
	}
	return s, s.startAt(freePort)
}

// startAt starts the server at a port that ports gives. Another process may take it before the server does:
// then it is another one's turn.
func (s *Server) startAt(ports func() (int, error)) (err error) {
	for range 10 {
		if s.Port, err = ports(); err != nil {
			return err
		}
		if err = s.Start(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
		// The log is read for this reason: the next try has one of its own.
		if err := os.Remove(s.log()); err != nil {
			return err
		}
	}
	return err
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }
func (s *Server) log() string  { return filepath.Join(s.folder, "log") }

func (s *Server) password() string { return filepath.Join(s.folder, "password") }

// giveAway lets another user own what the server needs: PostgreSQL refuses to run as root.
func (s *Server) giveAway(paths ...string) error {
	if os.Getuid() != 0 {
		return nil
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		if owner, err = user.Lookup("nobody"); err != nil {
			return err
		}
	}
	uid, err := strconv.ParseUint(owner.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(owner.Gid, 10, 32)
	if err != nil {
		return err
	}
	s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	for _, path := range paths {
		if err := os.Chown(path, int(uid), int(gid)); err != nil {
			return err
		}
	}
	return nil
}

// command makes a command that dies with the thread that starts it, where the system can do that.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.folder
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = attributes(s.owner)
	return cmd
}

// freePort finds one that the system gives to nobody who asks for any: a server that is down for a while
// has its own again when it is started. Other tests draw theirs from 22500 on.
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

// Start starts the server again and returns when it answers.
func (s *Server) Start() error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.Socket, "-h", "127.0.0.1",
		"-c", "shared_buffers=32MB", "-c", "max_wal_size=256MB",
		"-c", "max_connections=400"} // many tests share a server, and some use a hundred
	for name, value := range s.settings {
		args = append(args, "-c", name+"="+value)
	}
	cmd := s.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	s.exited = make(chan struct{})
	started := make(chan error)
	go func() {
		// The kernel signals the server when the thread that started it ends, so the thread
		// stays until the server has ended, and both end with the test binary.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(s.exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process = cmd.Process
	return s.awaitAnswer()
}

func (s *Server) awaitAnswer() error {
	deadline := time.Now().Add(patience)
	for {
		_, err := s.query("postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		log, _ := os.ReadFile(s.log())
		return fmt.Errorf("the server does not answer: %w\n%s", err, log)
	}
}

// Stop stops the server as an operator would: sessions are ended, what is committed is kept.
func (s *Server) Stop() error { return s.end(syscall.SIGINT) }

// Kill9 kills the postmaster, and returns when its children have noticed and are gone too.
func (s *Server) Kill9() error {
	children := childrenOf(s.process.Pid)
	if err := s.end(syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); slices.ContainsFunc(children, alive); {
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of a killed server are still there after %v", patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (s *Server) end(signal syscall.Signal) error {
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the server has not ended %v after signal %v", patience, signal)
	}
}

func (s *Server) remove() error {
	var err error
	if s.process != nil {
		err = s.end(syscall.SIGQUIT)
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// childrenOf lists the processes whose parent is pid.
func childrenOf(pid int) (children []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, parent, ok := status(child); ok && parent == pid {
			children = append(children, child)
		}
	}
	return children
}

func alive(pid int) bool {
	state, _, ok := status(pid)
	return ok && state != "Z"
}

// status reads the state and the parent of a process. They follow its name, which is in brackets
// and may hold anything.
func status(pid int) (state string, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// URL is the address of a database over TCP, with the password.
func (s *Server) URL(database string) string { return s.urlAt("127.0.0.1", s.Port, database) }

// Through is the URL of a database for who reaches the server at another address, such as a proxy's.
func (s *Server) Through(address, database string) string {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return s.urlAt(host, port, database)
}

func (s *Server) urlAt(host string, port int, database string) string {
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword(User, Password),
		Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}).String()
}

// SocketURL is the address of a database over the unix socket.
func (s *Server) SocketURL(database string) string {
	return (&url.URL{
		Scheme: "postgres", User: url.User(User), Path: "/" + database,
		RawQuery: url.Values{"host": {s.Socket}, "port": {strconv.Itoa(s.Port)}}.Encode(),
	}).String()
}

// Database makes an empty database and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.databases.Add(1))
	s.Exec(t, "CREATE DATABASE "+name)
	return s.URL(name)
}

// Exec runs a statement as the superuser in the database postgres.
func (s *Server) Exec(t testing.TB, sql string) {
	t.Helper()
	if _, err := s.query("postgres", sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Query runs a statement as the superuser in a database and returns its rows, every value as text.
func (s *Server) Query(t testing.TB, database, sql string) [][]string {
	t.Helper()
	rows, err := s.query(database, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

// Attempt is Query for statements that may fail.
func (s *Server) Attempt(database, sql string) (rows [][]string, err error) {
	return s.query(database, sql)
}

func (s *Server) query(database, sql string) (rows [][]string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.SocketURL(database))
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	for _, result := range results {
		for _, values := range result.Rows {
			row := make([]string, len(values))
			for i, value := range values {
				row[i] = string(value)
			}
			rows = append(rows, row)
		}
	}
	return rows, err
}
