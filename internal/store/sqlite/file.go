package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"plantstore/internal/machine"
)

var errNotRegular = errors.New("it is not a regular file; use the path of a regular file")

// What SQLite appends to the path of a database file for its WAL and for the index of the WAL.
const (
	walSuffix = "-wal"
	shmSuffix = "-shm"
)

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
	return withoutPath(machine.SyncFolder(path))
}

// checkOrphan returns an error if a WAL exists whose database file is missing or empty: SQLite would remove the WAL.
func checkOrphan(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		target = path
	}
	// The WAL is checked first, because another process that creates the database writes to the file before the WAL.
	wal, err := os.Stat(target + walSuffix)
	if err != nil || !wal.Mode().IsRegular() || wal.Size() == 0 {
		return nil
	}
	file, err := os.Stat(target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && file.Size() == 0 {
		return errors.New("the file is missing or empty, but its WAL (the same name followed by " + walSuffix + ") exists; " +
			"put the file back, or move the WAL away to start with an empty database")
	}
	return nil
}

// Restrict removes the access of the group and of other users to a database file that Open has accepted, to its WAL and
// to the index of the WAL. It calls warn for each file that had such access.
func Restrict(path string, warn func(message string, attrs ...any)) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil || runtime.GOOS == "windows" {
		return
	}
	for _, suffix := range []string{"", walSuffix, shmSuffix} {
		info, err := os.Stat(target + suffix)
		if err != nil || info.Mode().Perm()&0o077 == 0 {
			continue
		}
		mode := slog.String("mode", fmt.Sprintf("%04o", info.Mode().Perm()))
		if err := os.Chmod(target+suffix, info.Mode().Perm()&0o700); err != nil {
			warn("other users can access the database, and its mode can't be changed", "file", target+suffix, mode,
				"error", withoutPath(err))
			continue
		}
		warn("other users could access the database; only its owner can now", "file", target+suffix, mode)
	}
}

// withoutPath removes the path from an error that will be wrapped in one that names it.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
