package sqlite

import (
	"fmt"
	"iter"
	"slices"

	"zombiezen.com/go/sqlite"
)

// openConn opens a connection to a file that exists.
func openConn(path string, morePragmas ...string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite) // without OpenURI, ? and # are ordinary characters
	if err != nil {
		return nil, err
	}
	return initConn(conn, pragmas, morePragmas...)
}

// openReader opens a connection that only reads.
func openReader(path string) (*sqlite.Conn, error) { return openConn(path, "query_only(1)") }

// initConn applies the pragmas, or closes the connection.
func initConn(conn *sqlite.Conn, pragmas []string, more ...string) (*sqlite.Conn, error) {
	conn.SetBusyTimeout(busyTimeout)
	for _, pragma := range slices.Concat(pragmas, more) {
		if err := exec(conn, "PRAGMA "+pragma); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// query runs a statement and yields its rows. The statement is prepared on its first use and kept.
func query(conn *sqlite.Conn, text string, args ...any) iter.Seq2[*sqlite.Stmt, error] {
	return func(yield func(*sqlite.Stmt, error) bool) {
		stmt, err := conn.Prepare(text)
		if err != nil {
			yield(nil, err)
			return
		}
		defer release(stmt)
		for i, arg := range args {
			bind(stmt, i+1, arg)
		}
		for {
			row, err := stmt.Step()
			if err != nil {
				yield(nil, err)
				return
			}
			if !row || !yield(stmt, nil) {
				return
			}
		}
	}
}

// exec runs a statement whose rows, if any, do not matter.
func exec(conn *sqlite.Conn, text string, args ...any) error {
	for _, err := range query(conn, text, args...) {
		if err != nil {
			return err
		}
	}
	return nil
}

// release ends a statement and frees the memory of its parameters. A failure does no harm: Prepare does both again
// before the next use, and reports it.
func release(stmt *sqlite.Stmt) {
	stmt.Reset()
	stmt.ClearBindings() // not after an interrupt
}

func bind(stmt *sqlite.Stmt, param int, value any) {
	switch v := value.(type) {
	case int64:
		stmt.BindInt64(param, v)
	case string:
		stmt.BindText(param, v)
	case []byte:
		stmt.BindBytes(param, v)
	case *int64:
		if v != nil {
			stmt.BindInt64(param, *v)
		}
	case *string:
		if v != nil {
			stmt.BindText(param, *v)
		}
	default:
		panic(fmt.Sprintf("sqlite: a parameter is a %T", value))
	}
}

// checkTypes checks the first columns of a row, which can't be NULL. The schema enforces their types, so that another
// one means that the file is damaged or was written without it.
func checkTypes(row *sqlite.Stmt, types ...sqlite.ColumnType) error {
	for i, want := range types {
		if got := row.ColumnType(i); got != want {
			return fmt.Errorf("column %s is %v: %w", row.ColumnName(i), got, sqlite.ResultCorrupt.ToError())
		}
	}
	return nil
}

// textOrNil returns the text in a column, or nil for NULL.
func textOrNil(row *sqlite.Stmt, column int) *string {
	if row.ColumnIsNull(column) {
		return nil
	}
	text := row.ColumnText(column)
	return &text
}

// intOrNil returns the integer in a column, or nil for NULL.
func intOrNil(row *sqlite.Stmt, column int) *int64 {
	if row.ColumnIsNull(column) {
		return nil
	}
	n := row.ColumnInt64(column)
	return &n
}
