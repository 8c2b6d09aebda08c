package pgtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore/test/testkit/missing"
)

// Pooler is a PgBouncer in front of a server.
type Pooler struct {
	Address string

	server *Server
	start  func() *exec.Cmd
	daemon
}

const pgbouncerConfig = `
[databases]
* = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = %s
max_client_conn = 1000
default_pool_size = %d
`

// StartPooler starts PgBouncer with its default settings for one test. The program is that of the variable
// PLANTSTORE_TEST_PGBOUNCER, or the installed one. In transaction mode the sessions of the server are fewer than the
// connections of a client, so that these have to share them.
func StartPooler(t testing.TB, server *Server, mode string) *Pooler {
	t.Helper()
	program := os.Getenv("PLANTSTORE_TEST_PGBOUNCER")
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		missing.Report(t, "PgBouncer is not installed on this machine: install the package pgbouncer, as `make test` does")
	}
	dir, err := os.MkdirTemp("", "pgtest-")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755) // PgBouncer does not run as root either
	}
	port, portErr := freePort()
	if err := cmp.Or(err, portErr); err != nil {
		t.Fatal(err)
	}
	size := 3
	if mode == "session" {
		size = 100
	}
	users, config := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini")
	for path, text := range map[string]string{
		users:  fmt.Sprintf("%q %q\n", User, Password),
		config: fmt.Sprintf(pgbouncerConfig, server.Port, port, users, mode, size),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &Pooler{Address: fmt.Sprint("127.0.0.1:", port), server: server}
	p.logFile = filepath.Join(dir, "log")
	p.start = func() *exec.Cmd { return asOwner(exec.Command(program, config)) }
	if err := p.Start(); err != nil {
		t.Fatal("start PgBouncer: ", err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// URL returns the URL of a database of the server through PgBouncer.
func (p *Pooler) URL(database string) string { return p.server.Through(p.Address, database) }

// Start starts PgBouncer, and returns when it accepts connections.
func (p *Pooler) Start() error {
	return p.run(p.start(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		conn, err := pgx.Connect(ctx, p.URL("postgres"))
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

// Stop ends PgBouncer at once: it drops the connections of its clients and those to the server.
func (p *Pooler) Stop() error { return p.end(syscall.SIGQUIT) }
