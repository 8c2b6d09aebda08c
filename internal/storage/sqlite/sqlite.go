// Package sqlite keeps plants and tokens in one SQLite file: the default engine.
//
// One connection writes (writer.go), a pool of others reads (pool.go). The file is in WAL mode with
// synchronous=FULL: COMMIT returns after the write-ahead log (WAL) is on disk.
//
// The engine is called through zombiezen.com/go/sqlite, not database/sql, which takes more processor time for a get.
package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/tables"
)

// SQLite before 3.53.4 can corrupt a file when the WAL restarts. With an older version this constant is
// negative and the package does not compile.
const _ = uint(sqlite.VersionNumber - 3_053_004)

func init() {
	// modernc's own driver makes this call, zombiezen's does not. Without it SQLite assumes pages of 4 KiB on
	// linux/arm64, and a kernel with pages of 64 KiB refuses to map the index of the WAL.
	sqlite3.PatchIssue199()
}

// Storage is an open database file. It implements storage.Storage.
type Storage struct {
	tables.Tables
	writer  *writer
	readers *pool
	damage  storage.Damage
}

var _ storage.Storage = (*Storage)(nil)

// Open opens the database file, creates it (mode 0600) if it does not exist, and brings its schema
// up to date. Its errors are sentences for an operator.
func Open(ctx context.Context, path string) (*Storage, error) {
	return opened(path, func(s *Storage) error { return s.open(ctx, path, false, false) })
}

// OpenCommand is Open for a command that may run beside a service. Unless migrate is set, it refuses an older schema.
func OpenCommand(ctx context.Context, path string, migrate bool) (*Storage, error) {
	return opened(path, func(s *Storage) error { return s.open(ctx, path, true, !migrate) })
}

// opened returns a storage on which open was called, or closes it after an error.
func opened(path string, open func(*Storage) error) (*Storage, error) {
	s := new(Storage)
	s.Tables = tables.New(database{s}, &s.damage, expiredDeliveries)
	if err := open(s); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, errors.Join(withoutPath(err), s.Close()))
	}
	return s, nil
}

func (s *Storage) open(ctx context.Context, path string, command, keepSchema bool) (err error) {
	if err := createFile(path); err != nil {
		return err
	}
	if s.writer, err = newWriter(path, &s.damage); err != nil {
		return err
	}
	if err := s.writer.open(command, keepSchema); err != nil {
		return err
	}
	if s.readers, err = openPool(maxReaders(), &s.damage, s.writer.files.target, openReadOnly); err != nil {
		return err
	}
	if _, err := s.Tokens(ctx); err != nil { // report a damaged file now, not to the first client
		return err
	}
	return s.checkRead(ctx)
}

// maxReaders is more than the long reads that the service accepts at once: two searches and two counts. So neither a
// get nor the lookup of a token waits for the end of a long read.
func maxReaders() int { return max(5, runtime.NumCPU()) }

// Lanes implements storage.Storage: there is one writer.
func (s *Storage) Lanes() int { return 1 }

func (s *Storage) Migrated() (from, to int) { return s.writer.from, s.writer.to }

func (s *Storage) Check(ctx context.Context) error {
	return cmp.Or(s.damage.Err(), s.writer.check(ctx), s.checkRead(ctx))
}

func (s *Storage) checkRead(ctx context.Context) error {
	if _, err := s.Get(ctx, "", 0); err != nil && !errors.Is(err, plant.ErrNotFound) {
		return err
	}
	return nil
}

func (s *Storage) Stats() storage.Stats {
	conns, idle, target := cap(s.readers.idle), len(s.readers.idle), s.writer.files.target
	stats := storage.Stats{
		Engine: "sqlite", Schema: s.writer.to, Stopped: s.writer.stopReason() != nil,
		Free: statDisk(target).free, UsedConns: conns - idle, IdleConns: idle, MaxConns: conns,
	}
	if info, err := os.Stat(target); err == nil {
		stats.Bytes = info.Size()
	}
	if info, err := os.Stat(target + walSuffix); err == nil {
		stats.WALBytes = info.Size()
	}
	if info, err := os.Stat(target + backupSuffix); err == nil {
		stats.Backup = info.ModTime().Unix()
	}
	return stats
}

// ObserveCheckpoints makes the writer call observe after every checkpoint.
func (s *Storage) ObserveCheckpoints(observe func(took time.Duration, err error)) {
	s.writer.observeCheckpoint.Store(&observe)
}

// Close implements storage.Storage. Usually its last connection copies the WAL into the file and removes it.
// If a read does not end, everything is left to the end of the process: closing a descriptor of the file would
// release the locks of that read.
func (s *Storage) Close() error {
	err := s.readers.close()
	if errors.Is(err, errInFlight) {
		return err
	}
	return errors.Join(err, s.writer.close())
}
