package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// What SQLite appends to the path of a database file for its WAL and for the index of the WAL.
const (
	walSuffix = "-wal"
	shmSuffix = "-shm"
)

// createFile creates the database file, readable by its owner only, or checks that an existing file can be written.
func createFile(path string) error {
	if err := checkOrphan(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// findFile returns the absolute path of an existing database file without symbolic links.
func findFile(path string) (target string, info os.FileInfo, err error) {
	if target, err = filepath.EvalSymlinks(path); err != nil {
		target = path
	}
	if target, err = filepath.Abs(target); err != nil {
		return "", nil, err
	}
	if err := checkOrphan(target); err != nil {
		return "", nil, err
	}
	if info, err = os.Stat(target); err != nil {
		return "", nil, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return "", nil, errors.New("it is not a regular file; use the path of a regular file")
	}
	return target, info, nil
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

// CheckAbsent returns an error if a database file, or a file that SQLite keeps next to it, exists.
func CheckAbsent(path string) error {
	for _, suffix := range []string{"", walSuffix, shmSuffix, "-journal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			return fmt.Errorf("%s exists; name another file, or move it away", path+suffix)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
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
		message := "other users could access the database; only its owner can now"
		if err := os.Chmod(target+suffix, info.Mode().Perm()&0o700); err != nil {
			message = fmt.Sprintf("other users can access the database, and its mode can't be changed: %v", withoutPath(err))
		}
		warn(message, "file", target+suffix, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
}

// withoutPath removes the path from an error that will be wrapped in one that names it.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
