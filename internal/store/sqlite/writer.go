package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"

	"modernc.org/sqlite"

	"plantstore/internal/plant"
)

// writer is the one connection that changes the file. It speaks to the driver directly:
// database/sql would cost a batch more than the batch itself.
//
// After a commit that may or may not be on disk (a failed fsync), it never writes again:
// the kernel may have dropped the pages, and a second fsync would lie.
type writer struct {
	mu       sync.Mutex
	conn     driver.Conn
	prepared map[string]statement
	args     []driver.NamedValue
	broken   error
}

func openWriter(ctx context.Context, connector driver.Connector) (*writer, error) {
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, translate(err)
	}
	w := &writer{conn: conn, prepared: map[string]statement{}}
	if err := w.migrate(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// tx runs do inside a transaction that holds the write lock, and commits. When it returns nil,
// what do changed is on disk.
func (w *writer) tx(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	if _, err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return translate(err)
	}
	if err := do(); err != nil {
		w.rollback()
		return translate(err)
	}
	if _, err := w.exec("COMMIT"); err != nil {
		return w.commitFailed(err)
	}
	return nil
}

func (w *writer) commitFailed(err error) error {
	w.rollback()
	switch code := codeOf(err); {
	case code == sqliteBusy:
		return translate(err) // refused before anything was written
	case code == sqliteFull:
		return fmt.Errorf("commit: %w: %w", plant.ErrUnknown, plant.ErrFull)
	default:
		w.broken = fmt.Errorf("%w: a commit failed (%v), so nothing more is written until the service is started again", plant.ErrUnavailable, err)
		return fmt.Errorf("commit: %w: %v", plant.ErrUnknown, err)
	}
}

// rollback ends a transaction if SQLite has not ended it by itself.
func (w *writer) rollback() {
	if _, err := w.exec("ROLLBACK"); err != nil && codeOf(err) != sqliteError {
		w.broken = fmt.Errorf("%w: a rollback failed (%v), so nothing more is written until the service is started again", plant.ErrUnavailable, err)
	}
}

// exec runs a statement, prepared on its first use, and returns how many rows it changed.
func (w *writer) exec(query string, args ...driver.Value) (int64, error) {
	stmt, err := w.prepare(query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(context.Background(), w.ordered(args))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// row runs a query and returns its first row, or nil where it has none.
func (w *writer) row(query string, args ...driver.Value) ([]driver.Value, error) {
	stmt, err := w.prepare(query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(context.Background(), w.ordered(args))
	if err != nil {
		return nil, err
	}
	values := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(values)
	if errors.Is(err, io.EOF) {
		values, err = nil, nil
	}
	return values, errors.Join(err, rows.Close())
}

// statement is what the driver's prepared statements can do.
type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func (w *writer) prepare(query string) (statement, error) {
	if stmt, ok := w.prepared[query]; ok {
		return stmt, nil
	}
	stmt, err := w.conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	w.prepared[query] = stmt.(statement)
	return w.prepared[query], nil
}

// ordered gives arguments the form that the driver wants, in memory that is used again.
func (w *writer) ordered(args []driver.Value) []driver.NamedValue {
	w.args = w.args[:0]
	for i, value := range args {
		w.args = append(w.args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return w.args
}

func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, stmt := range w.prepared {
		errs = append(errs, stmt.Close())
	}
	w.broken = fmt.Errorf("%w: it was closed", plant.ErrUnavailable)
	return errors.Join(append(errs, w.conn.Close())...)
}

func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff // the primary code of an extended one
	}
	return -1
}
