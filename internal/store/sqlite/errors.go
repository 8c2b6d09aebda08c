package sqlite

import (
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/internal/plant"
)

// coded is an error of the library, as the driver and connection give it.
type coded interface {
	error
	Code() int
}

// translate gives an error of the library the meaning that the port knows, by its code.
// Other errors pass as they are.
func translate(err error) error {
	e, ok := errors.AsType[coded](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", plant.ErrFull, err)
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: the file is damaged or is not a SQLite database; restore a backup or name another file: %w", plant.ErrUnavailable, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: another process holds it locked: %w", plant.ErrUnavailable, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%w: %w", plant.ErrUnavailable, err)
	}
	return err
}

// codeOf is the primary result code of an error of the library, or -1.
func codeOf(err error) int {
	if e, ok := errors.AsType[coded](err); ok {
		return e.Code() & 0xff
	}
	return -1
}

// isIndex reports whether an error is about the shared memory that indexes the log.
func isIndex(err error) bool {
	e, ok := errors.AsType[coded](err)
	if !ok {
		return false
	}
	switch e.Code() {
	case sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMLOCK, sqlite3.SQLITE_IOERR_SHMMAP:
		return true
	}
	return false
}
