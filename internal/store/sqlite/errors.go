package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/internal/plant"
)

const (
	sqliteError = sqlite3.SQLITE_ERROR
	sqliteBusy  = sqlite3.SQLITE_BUSY
	sqliteFull  = sqlite3.SQLITE_FULL
)

// translate gives an error of the driver the meaning that the port knows, by its code.
// Errors that are not the driver's pass as they are.
func translate(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
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
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM:
		return fmt.Errorf("%w: %w", plant.ErrUnavailable, err)
	}
	return err
}
