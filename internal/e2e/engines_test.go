package e2e

import (
	"path/filepath"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
)

// engine makes a new database for a test and returns what --db takes.
type engine struct {
	name     string
	database func(t *testing.T) string
}

var engines = []engine{
	{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "plants.db") }},
	{"postgres", func(t *testing.T) string { return pgtest.Database(t) }},
}

// onEveryEngine runs a test against a server on a new database of each engine.
func onEveryEngine(t *testing.T, test func(t *testing.T, p *process), args ...string) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { test(t, serve(t, e.database(t), args...)) })
	}
}

// everywhere are servers on each engine: each question is put to all, and all must answer alike.
type everywhere []*process

func serveEverywhere(t *testing.T, args ...string) everywhere {
	t.Helper()
	var all everywhere
	for _, e := range engines {
		all = append(all, serve(t, e.database(t), args...))
	}
	return all
}

func (all everywhere) ask(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	first := all[0].ask(t, method, path, body, headers...)
	for i, p := range all[1:] {
		if a := p.ask(t, method, path, body, headers...); a.status != first.status || a.body != first.body || a.header.Get("ETag") != first.header.Get("ETag") || a.header.Get("Link") != first.header.Get("Link") {
			t.Errorf("%s %s %.100s: %s answers %d %s, %s answers %d %s", method, path, body,
				engines[0].name, first.status, first.body, engines[i+1].name, a.status, a.body)
		}
	}
	return first
}

func (all everywhere) create(t testing.TB, body string) answer {
	t.Helper()
	return all.ask(t, "POST", "/plants", body, asJSON)
}
