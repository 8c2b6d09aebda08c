package sqlite

import (
	"errors"
	"fmt"
	"slices"

	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/internal/store"
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
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: the file is damaged or is not a SQLite database; restore a backup or name another file: %w", store.ErrUnavailable, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: another process holds it locked: %w", store.ErrUnavailable, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, inWords(err))
	}
	return err
}

// inWords adds what failed to an error that SQLite calls "disk I/O error" and no more.
func inWords(err error) error {
	e, ok := errors.AsType[coded](err)
	if !ok {
		return err
	}
	switch e.Code() {
	case sqlite3.SQLITE_IOERR_FSYNC:
		return fmt.Errorf("the disk failed to sync: %w", err)
	case sqlite3.SQLITE_IOERR_WRITE:
		return fmt.Errorf("a file can't be written: %w", err)
	case sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ:
		return fmt.Errorf("a file can't be read: %w", err)
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

// isWrite reports whether an error is about a write that the system refused: what was to be written
// is not there, and nothing that was synced before is lost.
func isWrite(err error) bool { return isAny(err, sqlite3.SQLITE_IOERR_WRITE) }

// isSync reports whether an error is about a sync.
func isSync(err error) bool { return isAny(err, sqlite3.SQLITE_IOERR_FSYNC) }

// isIndex reports whether an error is about the shared memory that indexes the log.
func isIndex(err error) bool {
	return isAny(err, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMLOCK, sqlite3.SQLITE_IOERR_SHMMAP)
}

// isAny reports whether an error of the library has one of the extended result codes.
func isAny(err error, codes ...int) bool {
	e, ok := errors.AsType[coded](err)
	return ok && slices.Contains(codes, e.Code())
}
