package sqlite

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage"
)

// translate wraps an error of SQLite in the error of package storage that its code means.
// Other errors are returned unchanged.
func translate(err error) error {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull:
		return fmt.Errorf("%w: %w", storage.ErrFull, describe(err))
	case sqlite.ResultNotADB, sqlite.ResultCorrupt:
		return fmt.Errorf("%w or is not a SQLite database; restore a backup or name another file: %w",
			storage.ErrDamaged, describe(err))
	case sqlite.ResultBusy, sqlite.ResultLocked:
		return fmt.Errorf("%w: another process keeps it locked: %w", storage.ErrUnavailable, describe(err))
	case sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultIOErr, sqlite.ResultPerm, sqlite.ResultNoMem,
		sqlite.ResultTooBig:
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, describe(err))
	}
	return err
}

// resultIOErrInPage is a fault in the memory-mapped index of the WAL, such as a page without a block on a full disk.
const resultIOErrInPage = sqlite.ResultIOErr | 34<<8

// indexErrors are about the shared memory that indexes the WAL.
var indexErrors = []sqlite.ResultCode{
	sqlite.ResultIOErrSHMOpen, sqlite.ResultIOErrSHMSize, sqlite.ResultIOErrSHMLock, sqlite.ResultIOErrSHMMap,
	resultIOErrInPage,
}

// mayRetry reports whether an error, or nil, leaves what was written before as it is. After any other error of a
// checkpoint or a commit, the disk may lack pages that SQLite considers written.
func mayRetry(err error) bool {
	code := sqlite.ErrCode(err)
	switch code.ToPrimary() {
	case sqlite.ResultOK, sqlite.ResultBusy, sqlite.ResultLocked, sqlite.ResultFull:
		return true
	}
	return code == sqlite.ResultIOErrWrite
}

// describe adds the result code to an error of SQLite, and what failed to one that reads "disk I/O error".
func describe(err error) error {
	code := sqlite.ErrCode(err)
	err = fmt.Errorf("%w (%v)", err, code)
	switch code {
	case sqlite.ResultIOErrFsync:
		return fmt.Errorf("the disk failed to sync: %w", err)
	case sqlite.ResultIOErrWrite:
		return fmt.Errorf("a file can't be written: %w", err)
	case sqlite.ResultIOErrRead, sqlite.ResultIOErrShortRead:
		return fmt.Errorf("a file can't be read: %w", err)
	case sqlite.ResultIOErrSHMSize, resultIOErrInPage:
		return fmt.Errorf("the index of the WAL can't be written, perhaps because the disk is full: %w", err)
	}
	return err
}
