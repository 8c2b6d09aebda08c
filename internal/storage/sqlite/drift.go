package sqlite

import (
	_ "embed"
	"errors"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage"
)

//go:embed drift.sql
var selectLines string

// tableProblems returns changes of the tables that can lose or change plants or tokens. It compares the tables with
// those of a new file, so the file must have the schema of this program.
func tableProblems(conn *sqlite.Conn) (problems []string, err error) {
	fresh, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fresh.Close()) }()
	if _, _, err := applySteps(fresh); err != nil {
		return nil, err
	}
	var lines [2][]string
	for i, conn := range []*sqlite.Conn{conn, fresh} {
		for row, err := range query(conn, selectLines) {
			if err != nil {
				return nil, err
			}
			lines[i] = append(lines[i], row.ColumnText(0))
		}
	}
	return storage.Drift(lines[0], lines[1]), nil
}
