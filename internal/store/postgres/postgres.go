// Package postgres stores plants and tokens in a PostgreSQL database that any number of processes share.
//
// Every write is one transaction, and usually one round trip. Processes coordinate only through the
// database: there is no lock outside of a transaction.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/store"
)

// Store is an open database.
type Store struct {
	pool     *pgxpool.Pool
	opts     Options
	timeouts timeouts
	closed   atomic.Bool
	damage   store.Damage

	from, to int // see Migrated

	nodes  *nodeMonitor
	pooled atomic.Bool // whether new connections are expected to reach a pooler

	citus   bool // the database has the extension
	layout  atomic.Pointer[layout]
	spacing spacing

	opened        time.Time
	lastDuplicate atomic.Int64 // when insertNew last found an existing id, in nanoseconds since opened

	size databaseBytes

	lanes int // for each server
	conns int // in use at most
	// Semaphores that bound the connections in use. Creates have their own, so that they never wait for reads. On
	// Citus, lookups of tokens have their own too: reads of plants on a node that hangs would delay creates on others.
	createSlots, otherSlots, tokenSlots chan struct{}
}

var _ store.Store = (*Store)(nil)

// Options control how a database is opened.
type Options struct {
	// UnsafeDurability accepts a server that can lose data that it has confirmed.
	UnsafeDurability bool

	// KeepSchema refuses an older schema and does not migrate it. In an empty database, Open still creates the tables.
	KeepSchema bool

	readOnly bool // see OpenSource
}

const (
	defaultConns = 8 // connections in use at most, unless the URL sets pool_max_conns
	maxLanes     = 4 // on a server; more concurrent batches are smaller batches, and commit no more plants
	minLanes     = 2 // on each of several servers
	tokenConns   = 2 // for lookups of tokens, on Citus

	connectTimeout = 3 * time.Second // unless the URL sets connect_timeout
	pingTimeout    = time.Second     // of the check of a connection that was idle for a second
)

// timeouts bound the calls of a store. They are fields so that tests of faults need not wait for them.
type timeouts struct {
	write   time.Duration // of a write with all its attempts, and of Close, which waits for writes
	attempt time.Duration // of one attempt; longer than lock_timeout
	read    time.Duration

	nodePeriod  time.Duration // between two checks of the nodes of a cluster
	nodeConnect time.Duration // of a connection from one node to another
	nodeQuery   time.Duration // of the query for the settings of the nodes
	nodeCheck   time.Duration // of a check of all nodes
}

var defaultTimeouts = timeouts{
	write: 8 * time.Second, attempt: 4 * time.Second, read: 5 * time.Second,
	nodePeriod: time.Second, nodeConnect: time.Second, nodeQuery: 2 * time.Second, nodeCheck: 10 * time.Second,
}

// Open connects to the database at a postgres:// URL and migrates its schema.
//
// It refuses a server whose settings can lose confirmed data, and tables with changes that can lose or change it. Its
// errors are sentences for an operator and never contain the password.
func Open(ctx context.Context, address string, opts Options) (*Store, error) {
	config, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	s := newStore(opts)
	if err := s.open(ctx, config); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", displayURL(config.ConnConfig), err)
	}
	return s, nil
}

func newStore(opts Options) *Store {
	s := &Store{opts: opts, timeouts: defaultTimeouts, opened: time.Now()}
	s.lastDuplicate.Store(int64(-onConflictPeriod))
	return s
}

func (s *Store) open(ctx context.Context, config *pgxpool.Config) error {
	if err := s.prepare(ctx, config.ConnConfig); err != nil {
		return err
	}
	s.conns = s.divideConns(int(config.MaxConns))
	// A connection that is being closed counts for the pool, and on a network that hangs closing takes
	// seconds. So the pool may have twice as many, and the semaphores bound those in use.
	config.MaxConns = int32(2 * s.conns)
	config.PingTimeout = pingTimeout
	settings := takeSettings(config.ConnConfig)
	if s.citus {
		maps.Copy(settings, citusSettings)
	}
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		if s.pooled.Load() {
			config.DefaultQueryExecMode = pooledMode
		}
		return nil
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		err := initConn(ctx, conn, settings, s.opts)
		if err != nil {
			return err
		}
		sessionOf(conn).citus = s.citus
		pooled := sessionOf(conn).pooled
		s.pooled.Store(pooled)
		if pooled && conn.Config().DefaultQueryExecMode != pooledMode {
			return errPooled
		}
		return nil
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		if conn.IsClosed() {
			s.pool.Reset() // the connection was lost, so the others to the same server are probably lost too
		}
	}
	var err error
	s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return translate(err)
	}
	if !s.opts.readOnly {
		err = s.Check(ctx)
	}
	if err == nil && s.citus {
		s.nodes, err = s.monitorNodes(ctx, config.ConnConfig)
	}
	if err != nil {
		s.pool.Close()
	}
	return err
}

// divideConns divides the connections between creates and everything else, and returns how many there are.
func (s *Store) divideConns(conns int) int {
	servers, tokens := 1, 0
	if l := s.layout.Load(); l != nil {
		servers, tokens = l.servers, tokenConns
	}
	s.lanes = max(minLanes, maxLanes/servers)
	creates := s.lanes * servers
	if conns == 0 { // the URL does not set pool_max_conns
		conns = creates + defaultConns - maxLanes + tokens
	} else {
		creates = max(1, min(creates, conns/2))
		s.lanes = min(s.lanes, creates)
	}
	s.createSlots = make(chan struct{}, creates)
	s.otherSlots = s.createSlots
	if conns-creates <= tokens {
		tokens = 0 // there are too few connections
	}
	if conns > creates {
		s.otherSlots = make(chan struct{}, conns-creates-tokens)
	}
	s.tokenSlots = s.otherSlots
	if tokens > 0 {
		s.tokenSlots = make(chan struct{}, tokens)
	}
	return conns
}

// Lanes implements store.Store.
func (s *Store) Lanes() int { return s.lanes }

// Check implements store.Store.
func (s *Store) Check(ctx context.Context) error {
	if s.opts.readOnly {
		return errSource
	}
	if err := s.damage.Err(); err != nil {
		return err
	}
	if err := s.nodes.err(); err != nil {
		return err
	}
	// As in read, the end of the caller's context must not close a connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeouts.attempt)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return translate(err)
	}
	defer conn.Release()
	if err := checkSettings(ctx, conn.Conn(), s.opts); err != nil {
		s.resetIfUnsafe(err)
		return err
	}
	// An insert of no rows needs the same locks and privileges as a create, and fails in read-only mode.
	empty := newBatch(nil)
	defer empty.free()
	if _, err := empty.insertAbsent(ctx, conn.Conn(), nil); err != nil {
		return translate(err)
	}
	return translate(waitForStandby(ctx, conn.Conn()))
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	closed := make(chan struct{})
	go func() {
		s.nodes.close()
		s.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(s.timeouts.write + time.Second): // only connections on a network that hangs are left
	}
	return nil
}

var errClosed = fmt.Errorf("%w: it was closed", store.ErrUnavailable)

func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	if err := s.nodes.unsafe(); err != nil {
		return nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if errors.Is(err, errPooled) {
		conn, err = s.pool.Acquire(ctx)
	}
	s.resetIfUnsafe(err)
	return conn, err
}

// resetIfUnsafe closes all connections if err is an unsafeServerError. Their settings were checked when they
// were opened, but the setting that is now unsafe applies to all of them.
func (s *Store) resetIfUnsafe(err error) {
	if _, ok := errors.AsType[unsafeServerError](err); ok {
		s.pool.Reset()
	}
}
