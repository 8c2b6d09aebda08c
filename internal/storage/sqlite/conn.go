package sqlite

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"
)

// pragmas are the settings of every connection.
var pragmas = []string{
	"temp_store(MEMORY)", // no other folder than that of the database has to be writable
	"trusted_schema(0)",
	"cell_size_check(1)",
}

// writePragmas are the settings of a connection that can write.
var writePragmas = []string{
	fmt.Sprintf("page_size(%d)", pageSize), // of a new file; see pageSize
	"journal_mode(WAL)",
	"synchronous(FULL)",     // 200 means on disk
	"wal_autocheckpoint(0)", // the checkpointer does: see checkpoint.go
	"cache_size(-8000)",     // KiB: room for the inner pages of ten million plants, 5,600 KiB
}

// busyTimeout is how long a statement waits for a lock of another process: a token command, a second server.
const busyTimeout = 5 * time.Second

// opener opens a connection to a file that exists.
type opener func(target string) (*sqlite.Conn, error)

// openConn opens a connection with pragmas and more. Without OpenURI, ? and # are ordinary characters of the path.
func openConn(path string, flags sqlite.OpenFlags, more ...string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	conn.SetBusyTimeout(busyTimeout)
	for _, pragma := range slices.Concat(pragmas, more) {
		if err := exec(conn, "PRAGMA "+pragma); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

func openWritable(target string) (*sqlite.Conn, error) {
	return openConn(target, sqlite.OpenReadWrite, writePragmas...)
}

// query runs a statement and yields its rows. The statement is prepared on its first use and kept.
func query(conn *sqlite.Conn, text string, args ...any) iter.Seq2[*sqlite.Stmt, error] {
	return func(yield func(*sqlite.Stmt, error) bool) {
		stmt, err := conn.Prepare(text)
		if err != nil {
			yield(nil, err)
			return
		}
		// They end the statement and free the memory of its parameters. If one fails, as after an interrupt, Prepare does
		// both again before the next use.
		defer stmt.ClearBindings()
		defer stmt.Reset()
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

func bind(stmt *sqlite.Stmt, param int, value any) {
	switch v := value.(type) {
	case int64:
		stmt.BindInt64(param, v)
	case bool:
		stmt.BindBool(param, v)
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
