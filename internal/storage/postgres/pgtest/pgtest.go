// Package pgtest starts PostgreSQL servers for tests, each in a temporary directory. A server never outlives
// the process that has started it.
package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/test/testkit/missing"
)

// User is the superuser of every server. It needs the password over TCP, but not over the Unix socket.
const (
	User     = "postgres"
	Password = "not-to-be-seen"
)

// Main runs the tests of a package, stops the servers that they shared and returns the exit code. TestMain calls it.
func Main(m *testing.M) int {
	code := m.Run()
	err := sharedCluster.started.Load().removeShared()
	if s := shared.started.Load(); s != nil {
		err = errors.Join(err, removeAll([]*Server{s}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	return code
}

// onFirstUse is a server or a cluster that tests share. It is started when it is first used.
type onFirstUse[T any] struct {
	once    sync.Once
	started atomic.Pointer[T] // nil: not yet
	err     error
}

func (o *onFirstUse[T]) get(t testing.TB, start func() (*T, error)) *T {
	t.Helper()
	o.once.Do(func() {
		s, err := start()
		if o.err = err; err == nil {
			o.started.Store(s)
		}
	})
	if o.err != nil {
		t.Fatal("start PostgreSQL: ", o.err)
	}
	return o.started.Load()
}

var (
	shared        onFirstUse[Server]
	sharedCluster onFirstUse[Cluster]
)

// Shared returns the server of the run, which all its packages use, or else the one of this package. It requires Main.
// A test that stops or configures a server uses Start.
func Shared(t testing.TB) *Server {
	t.Helper()
	bin := binaries(t)
	return shared.get(t, func() (*Server, error) {
		servers, err := running(serverVariable, bin)
		if err == nil && len(servers) == 0 {
			return startShared(bin)
		}
		return append(servers, nil)[0], err
	})
}

// Database creates an empty database on the shared server and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return Shared(t).Database(t)
}

// Start starts a server for one test, with the given settings, and stops it when the test ends.
func Start(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	s, err := start(binaries(t), os.TempDir(), settings)
	return forTest(t, s, err)
}

// Standby starts a standby of a server for one test. Commits wait for it only if the primary is configured so.
func Standby(t testing.TB, primary *Server) *Server {
	t.Helper()
	if _, err := os.Stat(filepath.Join(primary.bin, "pg_basebackup")); err != nil {
		missing.Optional(t, "this distribution of PostgreSQL does not have pg_basebackup")
	}
	s, err := newServer(primary.bin, os.TempDir(), primary.settings, func(s *Server) error {
		return run(s.command("pg_basebackup", "--pgdata", s.data(), "--dbname", primary.SocketURL("postgres"),
			"--checkpoint=fast", "--write-recovery-conf"))
	})
	return forTest(t, s, err)
}

func forTest(t testing.TB, s *Server, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatal("start PostgreSQL: ", err)
	}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// binaries returns the directory of the programs of PostgreSQL. Without them the test is skipped, or fails if the
// variable CI is set.
func binaries(t testing.TB) string {
	t.Helper()
	dir := findBinaries()
	if dir == "" {
		missing.Report(t, "PostgreSQL is not installed on this machine: install the package postgresql, as `make test` does")
	}
	return dir
}

// findBinaries returns the directory of the variable PLANTSTORE_TEST_POSTGRES, or of the installed version that has a
// server.
func findBinaries() string {
	return cmp.Or(os.Getenv("PLANTSTORE_TEST_POSTGRES"), directoryWith("initdb"))
}

// directoryWith returns the directory that pg_config prints, or that of the newest version, if it has a file, or "".
func directoryWith(file string) string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, dir := range slices.Backward(dirs) {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			return dir
		}
	}
	return ""
}
