package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

var errNotRegular = errors.New("it is not a regular file; --db must be the path of a file")

// createFile creates the database file, readable by its owner only, and makes its directory entry durable.
// If the file exists, createFile checks that it can be written.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return errNotRegular // reading a FIFO would wait for a writer
		}
		f, err = os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			err = f.Close()
		}
		return withoutPath(err)
	}
	if err != nil {
		return withoutPath(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return withoutPath(err)
	}
	return syncDirectory(path)
}

// syncDirectory makes the directory entry of a file durable.
func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return withoutPath(err)
	}
	return withoutPath(errors.Join(directory.Sync(), directory.Close()))
}

// syncWAL makes durable what an earlier process left in the WAL. If that process was killed, the WAL may contain
// plants that were written and not synced. They are visible, so creating one again returns Same, which promises
// that it is on disk.
func syncWAL(path string) error {
	f, err := os.OpenFile(path+"-wal", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return withoutPath(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync its WAL: %w", withoutPath(err))
	}
	return syncDirectory(path) // SQLite does this too, but ignores failures
}

// withoutPath removes the path from an error that will be wrapped in one that names it.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
