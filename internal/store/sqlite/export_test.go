package sqlite

import (
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
)

// Pragmas returns the value of a pragma on the writer and on each reader.
func (s *Store) Pragmas(t *testing.T, name string) []string {
	conns := []*sqlite.Conn{s.writer.conn}
	for _, p := range []*pool{s.readers, s.lookups} {
		for range cap(p.idle) {
			conn := <-p.idle
			conns = append(conns, conn)
			defer func() { p.idle <- conn }()
		}
	}
	var values []string
	for _, conn := range conns {
		for row, err := range query(conn, "PRAGMA "+name) {
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, row.ColumnText(0))
		}
	}
	return values
}

// Plan returns how SQLite runs a statement of List or Stores.
func (s *Store) Plan(t *testing.T, list bool) string {
	text, args := storeNames, []any(nil)
	if list {
		text, args = listPlants, []any{"main", int64(0), int64(100)}
	}
	step := func(row *sqlite.Stmt) (string, error) { return row.ColumnText(3), nil }
	steps, err := collect(t.Context(), s.readers, step, "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(steps, "\n")
}
