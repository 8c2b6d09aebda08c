package testkit

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
)

// Engine makes a new database for a test and returns the value of --db for it.
type Engine struct {
	Name     string
	Database func(t *testing.T) string
}

// Engines are the engines that the product supports. The first needs no other program.
var Engines = []Engine{
	{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "plants.db") }},
	{"postgres", func(t *testing.T) string { return pgtest.Database(t) }},
}

// OnEachEngine runs a test against a server on a new database of each engine.
func OnEachEngine(t *testing.T, test func(t *testing.T, s *Server), args ...string) {
	for _, e := range Engines {
		t.Run(e.Name, func(t *testing.T) { test(t, Start(t, e.Database(t), args...)) })
	}
}

// Servers are one server on each engine, which must respond alike.
type Servers []*Server

// StartOnEachEngine starts a server on a new database of each engine.
func StartOnEachEngine(t *testing.T, args ...string) (all Servers) {
	t.Helper()
	for _, e := range Engines {
		all = append(all, Start(t, e.Database(t), args...))
	}
	return all
}

// Do sends a request to each server and fails the test where their responses differ.
func (all Servers) Do(t testing.TB, method, path, body string, headers ...string) Response {
	t.Helper()
	first := all[0].Do(t, method, path, body, headers...)
	for i, s := range all[1:] {
		a := s.Do(t, method, path, body, headers...)
		if a.Status != first.Status || a.Body != first.Body ||
			a.Header.Get("ETag") != first.Header.Get("ETag") || a.Header.Get("Link") != first.Header.Get("Link") {
			t.Errorf("%s %s %.100s: %s returns %d %s, %s returns %d %s", method, path, body,
				Engines[0].Name, first.Status, first.Body, Engines[i+1].Name, a.Status, a.Body)
		}
	}
	return first
}

// Create sends POST /plants to each server.
func (all Servers) Create(t testing.TB, body string) Response {
	t.Helper()
	return all.Do(t, "POST", "/plants", body, ContentJSON)
}

// DatabaseName is the name of the database in a postgres:// URL.
func DatabaseName(t testing.TB, db string) string {
	t.Helper()
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}
