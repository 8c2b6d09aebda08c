// Package sqlite keeps plants and tokens in one SQLite file: the default engine.
//
// One connection writes, a pool of others reads. The file is in WAL mode with synchronous=FULL:
// a COMMIT returns after the log is on disk.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"modernc.org/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// Older versions can corrupt a file when the log starts over.
const oldestSQLite = "3.53.4"

// Store is an open database file.
type Store struct {
	writer  *writer
	readers *sql.DB
	lookups *sql.DB // of tokens: who reads much must not keep others from being recognised
	get     *sql.Stmt
	token   *sql.Stmt
}

var _ store.Store = (*Store)(nil)

// Open opens the database file, makes it where there is none (mode 0600), and brings its schema
// up to date. Its errors are sentences for an operator.
func Open(ctx context.Context, path string) (_ *Store, err error) {
	named := path
	defer func() {
		if err != nil {
			err = fmt.Errorf("open the database %s: %w", named, err)
		}
	}()
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := makeFile(path); err != nil {
		return nil, err
	}
	s := new(Store)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.writer, err = openWriter(path); err != nil {
		return nil, err
	}
	reading, err := sqlite.NewConnector(dsn(path) + "&_pragma=query_only(1)")
	if err != nil {
		return nil, err
	}
	if s.readers, err = pool(ctx, reading, max(4, runtime.NumCPU())); err != nil {
		return nil, translate(err)
	}
	if s.lookups, err = pool(ctx, reading, 1); err != nil {
		return nil, translate(err)
	}
	if s.get, err = s.readers.PrepareContext(ctx, getPlant); err != nil {
		return nil, translate(err)
	}
	if s.token, err = s.lookups.PrepareContext(ctx, tokenByHash); err != nil {
		return nil, translate(err)
	}
	if _, err := s.Tokens(ctx); err != nil { // a damaged file is better met now
		return nil, err
	}
	return s, s.readable(ctx)
}

// pool opens all its connections now: on a file system that is frozen, opening one would wait.
func pool(ctx context.Context, connector driver.Connector, size int) (*sql.DB, error) {
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	for range size {
		conn, err := db.Conn(ctx)
		if err != nil {
			return db, err
		}
		defer conn.Close() // back into the pool
	}
	return db, nil
}

// settings are those of every connection.
var settings = []string{
	"busy_timeout(5000)", // another process may be writing: a token command, a second server
	"journal_mode(WAL)",
	"synchronous(FULL)",     // 200 means on disk
	"wal_autocheckpoint(0)", // the writer does it, and looks at the outcome
	"trusted_schema(0)",
	"cell_size_check(1)",
}

// dsn names a file to the driver, with settings, so that each connection of a pool has them.
func dsn(path string) string {
	// Escaping keeps characters such as ? and # of the path out of the settings.
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{"_pragma": settings}.Encode()
}

// makeFile makes the file, readable by its owner alone, and its entry in the folder durable.
func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(path, os.O_RDWR, 0) // can it be written?
		if err == nil {
			err = f.Close()
		}
		return plainly(err)
	}
	if err != nil {
		return plainly(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return plainly(err)
	}
	return syncFolder(path)
}

// syncFolder makes the entry of a file in its folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return plainly(err)
	}
	return plainly(errors.Join(folder.Sync(), folder.Close()))
}

// syncLog makes durable what is found in the log. A process that was killed may have written a plant there
// and not synced it; who creates it again is told that it is stored already.
func syncLog(path string) error {
	f, err := os.OpenFile(path+"-wal", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return plainly(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync its log: %w", plainly(err))
	}
	return syncFolder(path) // SQLite does this too, and does not look at the outcome
}

// plainly takes the path out of an error that is about to name it.
func plainly(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func checkVersion(version string) error {
	found, err := parseVersion(version)
	if err != nil {
		return err
	}
	oldest, err := parseVersion(oldestSQLite)
	if err != nil {
		return err
	}
	if slices.Compare(found, oldest) < 0 {
		return fmt.Errorf("SQLite is version %s: expected %s or newer, older ones can corrupt a file", version, oldestSQLite)
	}
	return nil
}

func parseVersion(version string) ([]int, error) {
	v := make([]int, 3)
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil {
		return nil, fmt.Errorf("SQLite calls itself version %q: expected three numbers", version)
	}
	return v, nil
}

// Lanes implements store.Store: there is one writer.
func (s *Store) Lanes() int { return 1 }

// Check implements store.Store.
func (s *Store) Check(ctx context.Context) error {
	if err := s.writer.check(); err != nil {
		return err
	}
	return s.readable(ctx)
}

func (s *Store) readable(ctx context.Context) error {
	if _, err := s.Get(ctx, "", 0); err != nil && !errors.Is(err, plant.ErrNotFound) {
		return err
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.readers, s.lookups} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	return errors.Join(errs...)
}
