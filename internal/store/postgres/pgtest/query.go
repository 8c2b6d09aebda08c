package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
)

// URL returns the URL of a database over TCP, with the password.
func (s *Server) URL(database string) string { return s.urlAt("127.0.0.1", s.Port, database) }

// Through returns the URL of a database at another address of the server, such as that of a proxy.
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

// SocketURL returns the URL of a database over the Unix socket.
func (s *Server) SocketURL(database string) string {
	return (&url.URL{
		Scheme: "postgres", User: url.User(User), Path: "/" + database,
		RawQuery: url.Values{"host": {s.Socket}, "port": {strconv.Itoa(s.Port)}}.Encode(),
	}).String()
}

// Database creates an empty database and returns its URL.
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
