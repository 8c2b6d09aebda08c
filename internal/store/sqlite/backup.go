package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

// CopyPages writes all pages that an existing database file has at one moment: a whole database file without a WAL.
// Other processes can use and change the database meanwhile, but its WAL can't restart, so it grows. The schema may be
// older.
func CopyPages(ctx context.Context, path string, w io.Writer) (err error) {
	target, _, err := findFile(path)
	if err != nil {
		return fmt.Errorf("open the database %s: %w", path, err)
	}
	conn, err := openReadOnly(target)
	if err != nil {
		return fmt.Errorf("open the database %s: %w", path, translate(err))
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	conn.SetInterrupt(ctx.Done())
	if err = exec(conn, "BEGIN"); err == nil { // all reads up to Close are from the same moment
		err = checkOwner(conn)
	}
	if err != nil {
		return fmt.Errorf("open the database %s: %w", path, cmp.Or(context.Cause(ctx), translate(err)))
	}
	page := make([]byte, 64<<10) // the largest that SQLite has
	for row, err := range query(conn, "SELECT data FROM sqlite_dbpage ORDER BY pgno") {
		if err != nil {
			return fmt.Errorf("read the database %s: %w", path, cmp.Or(context.Cause(ctx), translate(err)))
		}
		if _, err := w.Write(page[:row.ColumnBytes(0, page)]); err != nil {
			return err
		}
	}
	return nil
}

// OpenBackup opens a file that nothing changes, such as a backup, to read its plants and to check it. Its schema may be
// older.
func OpenBackup(path string) (*Store, error) {
	return openForReading(path, 1, openImmutable, checkOwner)
}

// openImmutable opens a connection that ignores locks and creates no file next to the database.
func openImmutable(path string) (*sqlite.Conn, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path = "/" + strings.TrimPrefix(filepath.ToSlash(path), "/") // C:\x is file:///C:/x
	uri := url.URL{Scheme: "file", Path: path, RawQuery: "immutable=1"}
	conn, err := sqlite.OpenConn(uri.String(), sqlite.OpenReadOnly, sqlite.OpenURI)
	if err != nil {
		return nil, err
	}
	return initConn(conn, readPragmas)
}

// checkOwner returns an error unless the file has tables of this program.
func checkOwner(conn *sqlite.Conn) error {
	_, applied, err := schemaSteps(conn)
	if err == nil && applied == 0 {
		err = errNoTables
	}
	return err
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

// CheckIntegrity reads the whole file and returns an error if it is damaged.
func (s *Store) CheckIntegrity(ctx context.Context) error {
	for row, err := range s.readers.query(ctx, "PRAGMA integrity_check(1)") {
		if err != nil {
			return err
		}
		if text := row.ColumnText(0); text != "ok" {
			return fmt.Errorf("%w: %s", store.ErrDamaged, text)
		}
	}
	return nil
}

// Contents is what a database contains.
type Contents struct {
	Stores []StoreSize
	Tokens int
}

// StoreSize is how many plants a store has.
type StoreSize struct {
	Name   string
	Plants int64
}

// Contents counts plants and tokens, whatever the version of the schema.
func (s *Store) Contents(ctx context.Context) (c Contents, err error) {
	for row, err := range s.readers.query(ctx, "SELECT store, count(*) FROM plants GROUP BY store ORDER BY store") {
		if err != nil {
			return c, err
		}
		c.Stores = append(c.Stores, StoreSize{row.ColumnText(0), row.ColumnInt64(1)})
	}
	for row, err := range s.readers.query(ctx, "SELECT count(*) FROM tokens") {
		if err != nil {
			return c, err
		}
		c.Tokens = row.ColumnInt(0)
	}
	return c, nil
}

// PartialSuffix is in the name of a backup until it is complete. doctor reports such files.
const PartialSuffix = ".partial-"
