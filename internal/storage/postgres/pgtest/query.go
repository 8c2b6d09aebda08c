package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// URL returns the URL of a database over TCP, with the password.
func (s *Server) URL(database string) string {
	return s.Through(fmt.Sprint("127.0.0.1:", s.Port), database)
}

// Through returns the URL of a database at another address of the server, such as that of a proxy.
func (s *Server) Through(address, database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", User, Password, address, database)
}

// SocketURL returns the URL of a database over the Unix socket.
func (s *Server) SocketURL(database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", User, database, url.QueryEscape(s.dir), s.Port)
}

// Name returns the name of the database in a URL.
func Name(address string) string { return strings.TrimPrefix(parse(address).Path, "/") }

// As returns the URL of a database for another user with the same password.
func As(address, user string) string {
	u := parse(address)
	u.User = url.UserPassword(user, Password)
	return u.String()
}

func parse(address string) *url.URL {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return u
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true after %v: %s", timeout, condition)
		}
	}
}

// Reload changes a setting of a running server, or resets it if the value is "", and returns when a new
// session has it. Sessions that are open apply it before their next statement.
func (s *Server) Reload(t testing.TB, setting, value string) {
	t.Helper()
	change := "RESET " + setting
	if value != "" {
		change = "SET " + setting + " = '" + value + "'"
	}
	before := s.Query(t, "postgres", "SHOW "+setting)[0][0]
	s.Exec(t, "ALTER SYSTEM "+change)
	s.Exec(t, "SELECT pg_reload_conf()")
	Eventually(t, setting+" is changed", func() bool { return s.Query(t, "postgres", "SHOW "+setting)[0][0] != before })
}

var databases atomic.Int64 // that this process has created

// newName returns the name of a database that no process uses.
func newName() string { return fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1)) }

// Database creates an empty database for one test and returns its URL. A shared server drops it when the test ends:
// thousands of them would fill its folder.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := newName()
	s.Exec(t, "CREATE DATABASE "+name)
	if s.shared {
		t.Cleanup(func() {
			if err := s.drop(name); err != nil {
				t.Error(err)
			}
		})
	}
	return s.URL(name)
}

// drop drops a database. DROP DATABASE waits five seconds until the sessions that it has ended are gone, which is too
// short on a busy machine, so it is repeated for a while.
func (s *Server) drop(name string) error {
	const objectInUse = "55006"
	for deadline := time.Now().Add(timeout); ; {
		_, err := s.Attempt("postgres", "DROP DATABASE "+name+" WITH (FORCE)")
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != objectInUse ||
			time.Now().After(deadline) {
			return err
		}
	}
}

// Exec runs a statement as the superuser in the database postgres.
func (s *Server) Exec(t testing.TB, sql string) {
	t.Helper()
	s.Query(t, "postgres", sql)
}

// Query runs a statement as the superuser in a database and returns its rows, every value as text.
func (s *Server) Query(t testing.TB, database, sql string) [][]string {
	t.Helper()
	rows, err := s.Attempt(database, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

// Attempt is Query for statements that may fail.
func (s *Server) Attempt(database, sql string) (rows [][]string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
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
