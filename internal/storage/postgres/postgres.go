// Package postgres stores plants and tokens in a PostgreSQL database that any number of processes share.
//
// Every write is one transaction, and usually one round trip. Processes coordinate only through the
// database: there is no lock outside of a transaction.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/storage"
	"plantstore/internal/storage/tables"
)

// Storage is an open database. It implements storage.Storage.
type Storage struct {
	tables.Tables
	pool     *pgxpool.Pool
	opts     Options
	timeouts Timeouts
	cluster  Cluster // nil: one server
	closed   atomic.Bool
	damage   storage.Damage
	bytes    atomic.Int64 // size of the database when Check read it

	from, to int // see Migrated

	lanes int // for each server
	conns int // in use at most
	// Semaphores that bound the connections in use. Creates have their own, so that they never wait for reads. In a
	// cluster, lookups of tokens have their own too: reads of plants on a node that hangs would delay creates on others.
	createSlots, otherSlots, tokenSlots chan struct{}
}

var _ storage.Storage = (*Storage)(nil)

// Options control how a database is opened.
type Options struct {
	// UnsafeDurability accepts a server that can lose data that it has confirmed.
	UnsafeDurability bool

	// KeepSchema refuses an older schema and does not migrate it. In an empty database, Open still creates the tables.
	KeepSchema bool

	// ReadOnly opens a database for reading only, whatever the durability of its server. It creates and migrates
	// nothing, and refuses an older or newer schema. The storage refuses every write.
	ReadOnly bool

	// Find finds a cluster. It may be nil.
	Find Finder

	// Timeouts replace the default ones, if they are set.
	Timeouts Timeouts
}

// Timeouts bound the calls of a Storage. Tests of faults shorten them.
type Timeouts struct {
	Write   time.Duration // of a write with all its attempts, and of Close, which waits for writes
	Attempt time.Duration // of one attempt; longer than lock_timeout
	Read    time.Duration
}

var defaultTimeouts = Timeouts{Write: 8 * time.Second, Attempt: 4 * time.Second, Read: 5 * time.Second}

const (
	defaultConns = 8 // connections in use at most, unless the URL sets pool_max_conns
	maxLanes     = 4 // on a server; more concurrent batches are smaller batches, and commit no more plants
	minLanes     = 2 // on each of several servers
	tokenConns   = 2 // for lookups of tokens, in a cluster

	connectTimeout = 3 * time.Second // of a connection, unless the URL sets connect_timeout
	pingTimeout    = time.Second     // of the check of a connection that was idle for a second
)

// Open connects to the database at a postgres:// URL and migrates its schema.
//
// It refuses a server whose settings can lose confirmed data, and tables with changes that can lose or change it. Its
// errors are sentences for an operator and never contain the password.
func Open(ctx context.Context, address string, opts Options) (*Storage, error) {
	config, err := ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	s := newStorage(opts)
	if err := s.open(ctx, config); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", DisplayURL(config.ConnConfig), err)
	}
	return s, nil
}

func newStorage(opts Options) *Storage {
	s := &Storage{opts: opts, timeouts: cmp.Or(opts.Timeouts, defaultTimeouts)}
	s.Tables = tables.New(database{s}, &s.damage, expiredDeliveries)
	return s
}

func (s *Storage) open(ctx context.Context, config *pgxpool.Config) (err error) {
	if err := s.prepare(ctx, config.ConnConfig); err != nil {
		return err
	}
	settings, servers := takeSettings(config.ConnConfig), 0
	if s.cluster != nil {
		maps.Copy(settings, s.cluster.Settings(s.timeouts.Attempt))
		servers = s.cluster.Servers()
	}
	s.divideConns(int(config.MaxConns), servers)
	// A connection that is being closed counts for the pool, and on a network that hangs closing takes
	// seconds. So the pool may have twice as many, and the semaphores bound those in use.
	config.MaxConns = int32(2 * s.conns)
	config.PingTimeout = pingTimeout
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		sessionOf(conn).cluster = s.cluster
		return startSession(ctx, conn, settings, s.opts)
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		if conn.IsClosed() {
			s.pool.Reset() // the connection was lost, so the others to the same server are probably lost too
		}
	}
	s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return Translate(err)
	}
	if s.opts.ReadOnly {
		return nil
	}
	if err = s.Check(ctx); err != nil {
		s.pool.Close()
	}
	return err
}

// divideConns divides the connections between creates, which have lanes on each server, and everything else. If conns
// is 0, the number follows from that of the servers, which is 0 unless plants are distributed.
func (s *Storage) divideConns(conns, servers int) {
	s.lanes = max(minLanes, maxLanes/max(1, servers))
	creates, others, tokens := s.lanes*max(1, servers), defaultConns-maxLanes, 0
	if servers > 0 {
		tokens = tokenConns
	}
	if conns > 0 {
		creates = max(1, min(creates, conns/2))
		s.lanes = min(s.lanes, creates)
		if others = conns - creates - tokens; others <= 0 {
			others, tokens = conns-creates, 0 // there are too few for tokens
		}
	}
	s.conns = creates + others + tokens
	s.createSlots = make(chan struct{}, creates)
	s.otherSlots = s.createSlots
	if others > 0 {
		s.otherSlots = make(chan struct{}, others)
	}
	s.tokenSlots = s.otherSlots
	if tokens > 0 {
		s.tokenSlots = make(chan struct{}, tokens)
	}
}

func (s *Storage) Lanes() int { return s.lanes }

func (s *Storage) Stats() storage.Stats {
	pool := s.pool.Stat()
	return storage.Stats{
		Engine: "postgresql", Schema: s.to, Bytes: s.bytes.Load(), WALBytes: -1, Free: -1,
		UsedConns: int(pool.AcquiredConns()), IdleConns: int(pool.IdleConns()), MaxConns: s.conns,
	}
}

var errSource = fmt.Errorf("%w: the database was opened for reading only", storage.ErrUnavailable)

const databaseSize = "SELECT pg_database_size(current_database())"

// Check implements storage.Storage. It also reads the size of the database.
func (s *Storage) Check(ctx context.Context) error {
	if s.opts.ReadOnly {
		return errSource
	}
	if err := s.damage.Err(); err != nil {
		return err
	}
	// As in read, the end of the caller's context must not close a connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeouts.Attempt)
	defer cancel()
	return Translate(s.withConn(ctx, func(conn *pgx.Conn) error {
		if err := checkSettings(ctx, conn, s.opts); err != nil {
			return err
		}
		// An insert of no rows needs the same locks and privileges as a create, and fails in read-only mode.
		if _, err := insert(ctx, conn, nil); err != nil {
			return err
		}
		var bytes int64
		if err := queryRow(ctx, conn, databaseSize).Scan(&bytes); err != nil {
			return err
		}
		s.bytes.Store(bytes)
		return waitForStandby(ctx, conn)
	}))
}

func (s *Storage) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	closed := make(chan struct{})
	go func() {
		s.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(s.timeouts.Write + time.Second): // only connections on a network that hangs are left
	}
	return nil
}

var errClosed = fmt.Errorf("%w: it was closed", storage.ErrUnavailable)

func (s *Storage) withConn(ctx context.Context, do func(conn *pgx.Conn) error) error {
	if s.closed.Load() {
		return errClosed
	}
	if s.cluster != nil {
		if err := s.cluster.Unsafe(); err != nil {
			return err
		}
	}
	conn, err := s.pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = do(conn.Conn())
	}
	if errors.Is(err, errUnsafe) {
		s.pool.Reset() // fsync and full_page_writes apply to all sessions, also to those that were checked before
	}
	return err
}
