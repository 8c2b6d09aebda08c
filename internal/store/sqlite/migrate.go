package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"zombiezen.com/go/sqlite/sqlitex"
)

//go:embed schema/*.sql
var schema embed.FS

const applicationID = 0x504C4E54

// migrate checks that the file belongs to this program and applies the new files of schema/, in the order of
// their names, in one transaction. The file's user_version is the number of files applied.
func (w *writer) migrate() error {
	steps, err := fs.Glob(schema, "schema/*.sql")
	if err != nil {
		return err
	}
	return w.tx(func() error {
		applied, err := w.number("PRAGMA user_version")
		if err != nil {
			return err
		}
		owner, err := w.number("PRAGMA application_id")
		if err != nil {
			return err
		}
		tables, err := w.number("SELECT count(*) FROM sqlite_schema")
		if err != nil {
			return err
		}
		switch {
		case owner != applicationID && (owner != 0 || tables != 0):
			return errors.New("the file is a database of another program; name another file")
		case applied > int64(len(steps)):
			return fmt.Errorf("its schema is version %d and this program supports versions up to %d; start the newer program",
				applied, len(steps))
		}
		for i := applied; i < int64(len(steps)); i++ {
			text, err := schema.ReadFile(steps[i])
			if err != nil {
				return err
			}
			script := fmt.Sprintf("%s;\nPRAGMA user_version = %d", text, i+1)
			if err := sqlitex.ExecuteScript(w.conn, script, nil); err != nil {
				return fmt.Errorf("apply %s: %w", steps[i], err)
			}
		}
		return nil
	})
}

// number returns the first column of the last row of a query.
func (w *writer) number(text string) (n int64, err error) {
	for row, err := range query(w.conn, text) {
		if err != nil {
			return 0, err
		}
		n = row.ColumnInt64(0)
	}
	return n, nil
}
