package sqlite

import (
	_ "embed"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

//go:embed drift.sql
var selectLines string

// tableProblems compares the tables of a file with the tables of a new one. The file has the schema of this program.
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
	return store.Drift(lines[0], lines[1]), nil
}

// checkTables returns an error if the tables were changed so that plants or tokens could be lost or changed.
func checkTables(conn *sqlite.Conn) error {
	problems, err := tableProblems(conn)
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("%w: %s; plantstore doctor lists every problem", store.ErrUnavailable, problems[0])
	}
	return err
}
