package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestDatabases(t *testing.T) {
	one, two := Database(t), Database(t)
	s, again := Shared(t), Shared(t)
	if one == two || s != again {
		t.Errorf("Database() = %s and %s, want different databases of one server", one, two)
	}
	for name, address := range map[string]string{
		"URL":       s.URL("test_1"),
		"SocketURL": s.SocketURL("test_1"),
		"Through":   s.Through(fmt.Sprintf("127.0.0.1:%d", s.Port), "test_1"),
		"Database":  one,
	} {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var database string
		err = conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&database)
		if err != nil || database != "test_1" {
			t.Errorf("%s: connected to %s, %v, want test_1", name, database, err)
		}
		conn.Close(t.Context())
	}
	if _, err := pgx.Connect(t.Context(), strings.ReplaceAll(one, Password, "wrong")); err == nil {
		t.Error("connected with a wrong password")
	}
	if got := s.Query(t, "test_1", "SELECT 1, 'a'; SELECT 2, NULL"); fmt.Sprint(got) != "[[1 a] [2 ]]" {
		t.Errorf("Query() = %v", got)
	}
	if _, err := s.Attempt("test_1", "SELECT 1/0"); err == nil {
		t.Error("Attempt(SELECT 1/0) = nil")
	}
}

// A committed row survives Stop and Kill9, at the same port and with the same settings.
func TestStopAndKill(t *testing.T) {
	s := Start(t, map[string]string{"work_mem": "5MB"})
	port := s.Port
	s.Exec(t, "CREATE TABLE kept (n integer)")
	for i, stop := range []func() error{s.Stop, s.Kill9} {
		s.Exec(t, "INSERT INTO kept VALUES (1)")
		pid := s.process.Pid
		children := childrenOf(pid)
		if runtime.GOOS == "linux" && (len(children) == 0 || !alive(pid) || !alive(children[0])) {
			t.Errorf("the server has the processes %d and %v, want several that run", pid, children)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range append(children, pid) {
			if alive(pid) {
				t.Errorf("process %d still runs", pid)
			}
		}
		if _, err := s.Attempt("postgres", "SELECT 1"); err == nil {
			t.Error("the server that was stopped accepts connections")
		}
		if err := s.Start(); err != nil || s.Port != port {
			t.Fatalf("Start() = %v at port %d, want %d", err, s.Port, port)
		}
		rows := s.Query(t, "postgres", "SELECT count(*), current_setting('work_mem') FROM kept")
		if got, want := fmt.Sprint(rows), fmt.Sprintf("[[%d 5MB]]", i+1); got != want {
			t.Errorf("after the restart: %s, want %s", got, want)
		}
	}
}

func TestStandby(t *testing.T) {
	primary := Start(t, nil)
	standby := Standby(t, primary)
	if got := standby.Query(t, "postgres", "SELECT pg_is_in_recovery()"); got[0][0] != "t" {
		t.Errorf("pg_is_in_recovery() = %v, want t", got)
	}
	if _, err := standby.Attempt("postgres", "CREATE TABLE refused (n integer)"); err == nil {
		t.Error("the standby accepts writes")
	}
}

// The directory and the processes of a server end with the test.
func TestServerIsRemoved(t *testing.T) {
	var s *Server
	t.Run("server", func(t *testing.T) { s = Start(t, nil) })
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("Stat(%s) = %v, want that it does not exist", s.dir, err)
	}
	if alive(s.process.Pid) {
		t.Error("the server still runs after its test")
	}
}

func TestStartFails(t *testing.T) {
	bin := binaries(t)
	tmp, err := os.MkdirTemp("", "pgtest-") // t.TempDir is not accessible to the user of the server
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	_, err = start(bin, map[string]string{"no_such_setting": "1"})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("start() = %v, want an error with the log of the server", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("a server that did not start has left %v, %v", left, err)
	}
	if _, err := start(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "initdb") {
		t.Errorf("start() without initdb = %v", err)
	}
}

// If a port is taken between its choice and the start, another one is chosen.
func TestPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	s := Start(t, nil)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	choices := 0
	err = s.startAt(func() (int, error) {
		if choices++; choices < 3 {
			return port, nil
		}
		return freePort()
	})
	if err != nil || choices != 3 || s.Port == port {
		t.Fatalf("startAt() = %v after %d choices, at port %d", err, choices, s.Port)
	}
	s.Exec(t, "SELECT 1")
	// The errors in the log of the failed starts do not concern the next one.
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Error(err)
	}
}

func TestFreePort(t *testing.T) {
	for range 100 {
		if port, err := freePort(); err != nil || port < 15000 || port >= 22500 {
			t.Fatalf("freePort() = %d, %v, want one from 15000 to 22499", port, err)
		}
	}
}

// pg_config is asked first; the newest of the other versions is preferred.
func TestFindBinaries(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	root := t.TempDir()
	bin := func(version string) string { return filepath.Join(root, version, "bin") }
	pattern := bin("*")
	if dir := findBinaries(pattern); dir != "" {
		t.Errorf("findBinaries() without PostgreSQL = %q", dir)
	}
	for _, version := range []string{"9.6", "15", "17", "18"} {
		if err := os.MkdirAll(bin(version), 0o755); err != nil {
			t.Fatal(err)
		}
		if version == "18" { // only the client programs
			continue
		}
		if err := os.WriteFile(filepath.Join(bin(version), "initdb"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if dir := findBinaries(pattern); dir != bin("17") {
		t.Errorf("findBinaries() = %q, want %q", dir, bin("17"))
	}
	config := filepath.Join(os.Getenv("PATH"), "pg_config")
	if err := os.WriteFile(config, []byte("#!/bin/sh\necho "+bin("15")+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if dir := findBinaries(pattern); dir != bin("15") {
		t.Errorf("findBinaries() = %q, want %q of pg_config", dir, bin("15"))
	}
}

// A process that has ended and not been waited for is not alive.
func TestAlive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the state of a process is read from /proc")
	}
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		if state, _, _ := status(pid); state == "Z" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the process has not ended after %v", timeout)
		}
	}
	if alive(pid) {
		t.Error("a zombie is alive")
	}
	if err := cmd.Wait(); err != nil || alive(pid) || !alive(os.Getpid()) {
		t.Errorf("alive() of a process that has ended = %v, of this one = %v, %v", alive(pid), alive(os.Getpid()), err)
	}
	if _, parent, ok := status(os.Getpid()); !ok || parent != os.Getppid() {
		t.Errorf("the parent of this process is %d, want %d", parent, os.Getppid())
	}
}
