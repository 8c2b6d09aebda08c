package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage"
)

var errSource = fmt.Errorf("%w: the database was opened for reading only", storage.ErrUnavailable)

// OpenSource opens an existing database file only to read it, also while other processes use it. Plants, tokens
// and schema stay unchanged, so a file whose schema is older or newer is refused. SQLite may create the WAL and its
// index next to the file, and leave them there.
func OpenSource(ctx context.Context, path string) (*Storage, error) {
	return opened(path, func(s *Storage) error { return s.openSource(ctx, path, maxReaders(), openReadOnly) })
}

// OpenBriefly is OpenSource for a read of a few milliseconds. It creates no file, unless a WAL has no index.
func OpenBriefly(ctx context.Context, path string) (*Storage, error) {
	return opened(path, func(s *Storage) error { return s.openSource(ctx, path, 1, openUnchanged) })
}

// openSource opens n connections that read, and none that writes.
func (s *Storage) openSource(ctx context.Context, path string, n int, open opener) (err error) {
	if s.writer, err = newWriter(path, &s.damage); err != nil {
		return err
	}
	s.writer.stopped.Store(&errSource)
	if s.readers, err = openPool(n, &s.damage, s.writer.files.target, open); err != nil {
		return err
	}
	conn := <-s.readers.idle
	err = checkVersion(conn, false)
	s.readers.put(conn)
	if err != nil {
		return translate(err)
	}
	_, err = s.Tokens(ctx)
	return err
}

// openReadOnly opens a connection that can't write to the file. It reads once, because the first read opens the WAL,
// which blocks while the file system is frozen.
func openReadOnly(target string) (*sqlite.Conn, error) {
	return openConn(target, sqlite.OpenReadOnly, "query_only(1)", "user_version")
}

// openUnchanged is openReadOnly for a read of a few milliseconds. If there is no WAL, it opens the file as immutable,
// because SQLite would create a WAL and leave it there.
func openUnchanged(target string) (*sqlite.Conn, error) {
	if _, err := os.Stat(target + walSuffix); err != nil {
		return openImmutable(target)
	}
	return openReadOnly(target)
}

// openImmutable opens a connection that ignores locks and creates no file next to the database.
func openImmutable(target string) (*sqlite.Conn, error) {
	target = "/" + strings.TrimPrefix(filepath.ToSlash(target), "/") // C:\x is file:///C:/x
	uri := url.URL{Scheme: "file", Path: target, RawQuery: "immutable=1"}
	return openConn(uri.String(), sqlite.OpenReadOnly|sqlite.OpenURI)
}

// read calls do with a connection to an existing database file. It stops when ctx ends.
func read(ctx context.Context, path string, open opener, do func(*sqlite.Conn) error) error {
	target, _, err := findFile(path)
	if err != nil {
		return err
	}
	conn, err := open(target)
	if err != nil {
		return translate(err)
	}
	conn.SetInterrupt(ctx.Done())
	if err = do(conn); err != nil {
		err = cmp.Or(context.Cause(ctx), translate(err))
	}
	return errors.Join(err, conn.Close())
}

// CopyPages writes all pages that an existing database file has at one moment: a whole database file without a WAL.
// Other processes can use and change the database meanwhile, but its WAL can't restart, so it grows. The schema may be
// older.
func CopyPages(ctx context.Context, path string, w io.Writer) error {
	err := read(ctx, path, openReadOnly, func(conn *sqlite.Conn) error {
		if err := exec(conn, "BEGIN"); err != nil { // all reads that follow are from the same moment
			return err
		}
		if err := checkVersion(conn, true); err != nil {
			return err
		}
		page := make([]byte, 64<<10) // the largest that SQLite has
		for row, err := range query(conn, "SELECT data FROM sqlite_dbpage ORDER BY pgno") {
			if err != nil {
				return err
			}
			if _, err := w.Write(page[:row.ColumnBytes(0, page)]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("copy the database %s: %w", path, err)
	}
	return err
}

// Contents is what a database contains.
type Contents struct {
	Plants int64 `json:"plants"` // of all stores
	Tokens int64 `json:"tokens"`

	Webhooks int64 `json:"webhooks"` // endpoints
}

// Verify reads a whole file that nothing changes, such as a backup, and returns an error if it is damaged. Its schema
// may be older.
func Verify(ctx context.Context, path string) (contents Contents, err error) {
	err = read(ctx, path, openImmutable, func(conn *sqlite.Conn) error {
		if err := checkVersion(conn, true); err != nil {
			return err
		}
		contents, err = verify(conn)
		return err
	})
	return contents, err
}

// verify checks all pages, and counts plants and tokens, whatever the version of the schema.
func verify(conn *sqlite.Conn) (c Contents, err error) {
	for row, err := range query(conn, "PRAGMA integrity_check(1)") {
		if err != nil {
			return c, err
		}
		if text := row.ColumnText(0); text != "ok" {
			return c, fmt.Errorf("%w; restore a backup: %s", storage.ErrDamaged, text)
		}
	}
	count := func(from string) (n int64) {
		if err == nil {
			n, err = number(conn, "SELECT count(*) FROM "+from)
		}
		return n
	}
	c.Plants, c.Tokens = count("plants"), count("tokens")
	if count("sqlite_schema WHERE name = 'webhooks'") > 0 {
		c.Webhooks = count("webhooks WHERE removed IS NULL")
	}
	return c, err
}
