// Package sqlite keeps plants and tokens in one SQLite file: the default engine.
//
// One connection writes (writer.go), a pool of others reads (pool.go). The file is in WAL mode with
// synchronous=FULL: COMMIT returns after the write-ahead log (WAL) is on disk.
//
// The engine is called through zombiezen.com/go/sqlite, not database/sql, which takes more processor time for a get.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// SQLite before 3.53.4 can corrupt a file when the WAL restarts. With an older version this constant is
// negative and the package does not compile.
const _ = uint(sqlite.VersionNumber - 3_053_004)

func init() {
	// modernc's own driver makes this call, zombiezen's does not. Without it SQLite assumes pages of 4 KiB on
	// linux/arm64, and a kernel with pages of 64 KiB refuses to map the index of the WAL.
	sqlite3.PatchIssue199()
}

// pragmas are the settings of a connection that can write, or that shares the WAL with one that can.
var pragmas = append([]string{
	fmt.Sprintf("page_size(%d)", pageSize), // of a new file; see pageSize
	"journal_mode(WAL)",
	"synchronous(FULL)",     // 200 means on disk
	"wal_autocheckpoint(0)", // the checkpointer does: see checkpoint.go
}, readPragmas...)

// readPragmas are the settings of every connection.
var readPragmas = []string{
	"temp_store(MEMORY)", // no other folder than that of the database has to be writable
	"trusted_schema(0)",
	"cell_size_check(1)",
}

// busyTimeout is how long a statement waits for a lock of another process: a token command, a second server.
const busyTimeout = 5 * time.Second

// Store is an open database file.
type Store struct {
	writer  *writer
	readers *pool
	lookups *pool // of tokens, so that long reads do not delay authentication
	damage  store.Damage
	disk    diskStats
}

var _ store.Store = (*Store)(nil)

// Open opens the database file, creates it (mode 0600) if it does not exist, and brings its schema
// up to date. Its errors are sentences for an operator.
func Open(ctx context.Context, path string) (*Store, error) { return openFor(ctx, path, false, false) }

// OpenCommand is Open for a command that may run beside a service. Unless migrate is set, it refuses an older schema.
func OpenCommand(ctx context.Context, path string, migrate bool) (*Store, error) {
	return openFor(ctx, path, true, !migrate)
}

func openFor(ctx context.Context, path string, command, keepSchema bool) (*Store, error) {
	s, err := open(ctx, path, command, keepSchema)
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string, command, keepSchema bool) (_ *Store, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := checkOrphan(path); err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
		return nil, err
	}
	s := new(Store)
	if s.writer, err = newWriter(path, &s.damage); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.writer.open(command, keepSchema); err != nil {
		return nil, err
	}
	if err := s.openReaders(max(4, runtime.NumCPU()), openReader); err != nil {
		return nil, err
	}
	s.disk.read(s.writer.files.target)
	if _, err := s.Tokens(ctx); err != nil { // report a damaged file now, not to the first client
		return nil, err
	}
	return s, s.checkRead(ctx)
}

// openReaders opens n connections that read plants, and one that reads tokens.
func (s *Store) openReaders(n int, open func(path string) (*sqlite.Conn, error)) (err error) {
	openTarget := func() (*sqlite.Conn, error) { return open(s.writer.files.target) }
	if s.readers, err = openPool(n, &s.damage, openTarget); err != nil {
		return err
	}
	s.lookups, err = openPool(1, &s.damage, openTarget)
	return err
}

// Lanes implements store.Store: there is one writer.
func (s *Store) Lanes() int { return 1 }

// Migrated implements store.Store.
func (s *Store) Migrated() (from, to int) { return s.writer.from, s.writer.to }

// Check implements store.Store.
func (s *Store) Check(ctx context.Context) error {
	s.disk.read(s.writer.files.target)
	s.writer.readSizes()
	if err := s.damage.Err(); err != nil {
		return err
	}
	if err := s.writer.check(ctx); err != nil {
		return err
	}
	return s.checkRead(ctx)
}

func (s *Store) checkRead(ctx context.Context) error {
	if _, err := s.Get(ctx, "", 0); err != nil && !errors.Is(err, plant.ErrNotFound) {
		return err
	}
	return nil
}

// Stats implements store.Store. It makes no system call: the sizes are those at the last write or check.
func (s *Store) Stats() store.Stats {
	conns, idle := cap(s.readers.idle), len(s.readers.idle)
	steps, _ := schema.ReadDir("schema") // all of them were applied when the database was opened
	return store.Stats{
		Engine: "sqlite", Schema: len(steps), Bytes: s.writer.fileSize.Load(), WALBytes: s.writer.walSize.Load(),
		Free: s.disk.free.Load(), Backup: s.disk.backup.Load(),
		Stopped: s.writer.stopReason() != nil, UsedConns: conns - idle, IdleConns: idle, MaxConns: conns,
	}
}

// ObserveCheckpoints makes the writer call observe after every checkpoint.
func (s *Store) ObserveCheckpoints(observe func(took time.Duration, err error)) {
	s.writer.observeCheckpoint.Store(&observe)
}

// Close implements store.Store. Usually its last connection copies the WAL into the file and removes it. If a read does
// not end, everything is left to the end of the process: closing a descriptor of the file would release the locks of
// that read.
func (s *Store) Close() error {
	err := errors.Join(s.readers.close(), s.lookups.close())
	if errors.Is(err, errInFlight) {
		return err
	}
	return errors.Join(err, s.writer.close())
}
