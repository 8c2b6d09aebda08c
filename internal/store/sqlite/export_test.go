package sqlite

import (
	"fmt"
	"testing"
)

var CheckVersion = checkVersion

// Settings is the value of a pragma on the writer and on a reader.
func (s *Store) Settings(t *testing.T, pragma string) map[string]string {
	row, err := s.writer.row("PRAGMA " + pragma)
	if err != nil {
		t.Fatal(err)
	}
	var reader string
	if err := s.readers.QueryRow("PRAGMA " + pragma).Scan(&reader); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"writer": fmt.Sprint(row[0]), "reader": reader}
}

// Plan is how SQLite would run the statement behind List.
func (s *Store) Plan(t *testing.T) string {
	var id, parent, unused int
	var detail string
	if err := s.readers.QueryRow("EXPLAIN QUERY PLAN "+listPlants, "main", 0, 100).Scan(&id, &parent, &unused, &detail); err != nil {
		t.Fatal(err)
	}
	return detail
}
