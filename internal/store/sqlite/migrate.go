package sqlite

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed schema/*.sql
var schema embed.FS

const applicationID = 0x504C4E54

// migrate checks that the file is ours and applies what is new in schema/, in the order of the
// file names, in one transaction. The file's user_version counts what has been applied.
func (w *writer) migrate() error {
	version, err := w.row("SELECT sqlite_version()")
	if err != nil {
		return translate(err)
	}
	if err := checkVersion(version[0].(string)); err != nil {
		return err
	}
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
			return fmt.Errorf("the file is a database of another program; name another file")
		case applied > int64(len(steps)):
			return fmt.Errorf("its schema is version %d and this program knows versions up to %d; start the newer program", applied, len(steps))
		}
		for i := applied; i < int64(len(steps)); i++ {
			text, err := schema.ReadFile(steps[i])
			if err != nil {
				return err
			}
			if err := w.script(fmt.Sprintf("%s;\nPRAGMA user_version = %d", text, i+1)); err != nil {
				return fmt.Errorf("apply %s: %w", steps[i], err)
			}
		}
		return nil
	})
}

func (w *writer) number(query string) (int64, error) {
	row, err := w.row(query)
	if err != nil {
		return 0, err
	}
	return row[0].(int64), nil
}
