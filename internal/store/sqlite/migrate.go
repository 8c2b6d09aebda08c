package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

//go:embed schema/*.sql
var schema embed.FS

const applicationID = 0x504C4E54

// migrate checks that the file belongs to this program and applies the new files of schema/, in the order of
// their names, in one transaction. The file's user_version is the number of files applied.
func (w *writer) migrate() error {
	return w.commit(func() error {
		steps, applied, err := schemaSteps(w.conn)
		if err != nil {
			return err
		}
		for i, step := range steps[applied:] {
			text, err := schema.ReadFile(step)
			if err != nil {
				return err
			}
			script := fmt.Sprintf("%s;\nPRAGMA user_version = %d", text, applied+i+1)
			if err := sqlitex.ExecuteScript(w.conn, script, nil); err != nil {
				return fmt.Errorf("apply %s: %w", step, err)
			}
		}
		return nil
	})
}

// schemaSteps returns the files of schema/ and how many of them were applied to a file of this program.
func schemaSteps(conn *sqlite.Conn) (steps []string, applied int, err error) {
	if steps, err = fs.Glob(schema, "schema/*.sql"); err != nil {
		return nil, 0, err
	}
	version, err := number(conn, "PRAGMA user_version")
	if err != nil {
		return nil, 0, err
	}
	owner, err := number(conn, "PRAGMA application_id")
	if err != nil {
		return nil, 0, err
	}
	tables, err := number(conn, "SELECT count(*) FROM sqlite_schema")
	switch {
	case err != nil:
		return nil, 0, err
	case owner != applicationID && (owner != 0 || tables != 0):
		return nil, 0, errors.New("the file is a database of another program; name another file")
	case version > int64(len(steps)):
		return nil, 0, fmt.Errorf("its schema is version %d and this program supports versions up to %d; "+
			"start the newer program", version, len(steps))
	}
	return steps, int(version), nil
}

// number returns the first column of the last row of a query.
func number(conn *sqlite.Conn, text string) (n int64, err error) {
	for row, err := range query(conn, text) {
		if err != nil {
			return 0, err
		}
		n = row.ColumnInt64(0)
	}
	return n, nil
}
