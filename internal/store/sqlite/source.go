package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

var errSource = fmt.Errorf("%w: the database was opened for reading only", store.ErrUnavailable)

// OpenSource opens an existing database file only to read it, also while other processes use it. Plants, tokens
// and schema stay unchanged, so a file whose schema is older or newer is refused. SQLite may create the WAL and its
// index next to the file, and leave them there.
func OpenSource(ctx context.Context, path string) (*Store, error) {
	return openSource(ctx, path, max(4, runtime.NumCPU()), openReadOnly)
}

// OpenBriefly is OpenSource for a read of a few milliseconds. It creates no file, unless a WAL has no index.
func OpenBriefly(ctx context.Context, path string) (*Store, error) {
	return openSource(ctx, path, 1, openUnchanged)
}

func openSource(
	ctx context.Context, path string, n int, open func(path string) (*sqlite.Conn, error),
) (*Store, error) {
	s, err := openForReading(path, n, open, checkVersion)
	if err == nil {
		if _, err = s.Tokens(ctx); err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	return s, nil
}

// openForReading opens n connections that read, with open, and none that writes. It calls check with one of them.
func openForReading(
	path string, n int, open func(path string) (*sqlite.Conn, error), check func(*sqlite.Conn) error,
) (_ *Store, err error) {
	s := new(Store)
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if _, _, err := findFile(path); err != nil {
		return nil, err
	}
	if s.writer, err = newWriter(path, &s.damage); err != nil {
		return nil, err
	}
	s.writer.stopped.Store(&errSource)
	if err = s.openReaders(n, open); err == nil {
		conn := <-s.lookups.idle
		err = check(conn)
		s.lookups.put(conn)
	}
	if err != nil {
		return nil, errors.Join(translate(err), s.Close())
	}
	return s, nil
}

// findFile returns the path of an existing database file without symbolic links.
func findFile(path string) (target string, info os.FileInfo, err error) {
	if target, err = filepath.EvalSymlinks(path); err != nil {
		target = path
	}
	if err := checkOrphan(target); err != nil {
		return "", nil, err
	}
	if info, err = os.Stat(target); err != nil {
		return "", nil, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return "", nil, errNotRegular
	}
	return target, info, nil
}

// openReadOnly opens a connection that can't write to the file.
func openReadOnly(path string) (*sqlite.Conn, error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	return initConn(conn, readPragmas, "query_only(1)")
}

// openUnchanged is openReadOnly for a read of a few milliseconds. If there is no WAL, it opens the file as immutable,
// because SQLite would create a WAL and leave it there.
func openUnchanged(path string) (*sqlite.Conn, error) {
	if _, err := os.Stat(path + walSuffix); err != nil {
		return openImmutable(path)
	}
	return openReadOnly(path)
}
