package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore/internal/storage"
)

//go:embed schema/*.sql
var schema embed.FS

const (
	applicationID = 0x504C4E54
	schemaState   = "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema)" +
		" FROM pragma_user_version, pragma_application_id"
)

// migrate checks that the file belongs to this program and applies the new files of schema/ in one transaction.
func (w *writer) migrate(keepSchema bool) error {
	return w.commit(func() (err error) {
		if keepSchema {
			if err := checkVersion(w.conn, false); err != nil && !errors.Is(err, errNoTables) {
				return err
			}
		}
		if w.from, w.to, err = applySteps(w.conn); err != nil {
			return err
		}
		problems, err := tableProblems(w.conn)
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("%w: %s; plantstore doctor lists every problem", storage.ErrUnavailable, problems[0])
		}
		return err
	})
}

// applySteps applies the new files of schema/ in the order of their names. from and to are the version of the schema
// before and after. The version is the number of applied files, which user_version stores.
func applySteps(conn *sqlite.Conn) (from, to int, err error) {
	steps, from, err := schemaSteps(conn)
	if err != nil {
		return 0, 0, err
	}
	for i, step := range steps[from:] {
		text, _ := schema.ReadFile(step)
		script := fmt.Sprintf("%s;\nPRAGMA user_version = %d", text, from+i+1)
		if err := sqlitex.ExecuteScript(conn, script, nil); err != nil {
			return 0, 0, fmt.Errorf("apply %s: %w", step, err)
		}
	}
	return from, len(steps), nil
}

var errNoTables = errors.New("it has no tables of Plant Store; use a file that serve has created")

// checkVersion returns an error unless the file has the schema of this program, or an older one if that is accepted.
func checkVersion(conn *sqlite.Conn, older bool) error {
	steps, applied, err := schemaSteps(conn)
	switch {
	case err != nil:
		return err
	case applied == 0:
		return errNoTables
	case applied < len(steps) && !older:
		return fmt.Errorf("its schema has version %d and this program needs version %d; make a backup, and run "+
			"plantstore db migrate --db with this file", applied, len(steps))
	}
	return nil
}

// schemaSteps returns the files of schema/ and how many of them were applied to a file of this program.
func schemaSteps(conn *sqlite.Conn) (steps []string, applied int, err error) {
	steps, _ = fs.Glob(schema, "schema/*.sql")
	for row, err := range query(conn, schemaState) {
		if err != nil {
			return nil, 0, err
		}
		owner, tables := row.ColumnInt(1), row.ColumnInt(2)
		if owner != applicationID && (owner != 0 || tables != 0) {
			return nil, 0, errors.New("the file is a database of another program; name another file")
		}
		applied = row.ColumnInt(0)
	}
	if applied > len(steps) {
		return nil, 0, fmt.Errorf("its schema has version %d and this program supports versions up to %d; "+
			"start the newer program", applied, len(steps))
	}
	return steps, applied, nil
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
