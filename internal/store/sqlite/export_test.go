package sqlite

import (
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

// AllowTemporaryFiles lets the writer create temporary files, which would otherwise be in memory.
func (s *Store) AllowTemporaryFiles(t *testing.T) {
	if err := exec(s.writer.conn, "PRAGMA temp_store(FILE)"); err != nil {
		t.Fatal(err)
	}
}

// Plan returns how SQLite runs the statement of List.
func (s *Store) Plan(t *testing.T) (plan string) {
	for row, err := range s.readers.query(t.Context(), "EXPLAIN QUERY PLAN "+listPlants, "main", int64(0), int64(100)) {
		if err != nil {
			t.Fatal(err)
		}
		plan += row.ColumnText(3)
	}
	return plan
}
