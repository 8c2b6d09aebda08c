// Package postgres keeps plants and tokens in a PostgreSQL database that any number of processes
// share, or in one that speaks its protocol and spreads the table plants over several servers.
//
// Every write is one transaction, and one round trip where nothing stands in its way. Two processes
// never agree on anything but through the database: there is no lock outside of a transaction.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/store"
)

// Store is an open database.
type Store struct {
	pool   *pgxpool.Pool
	opts   Options
	closed atomic.Bool

	opened time.Time
	taken  atomic.Int64 // when an id was last found taken by a batch that hoped for the best, in ns since opened

	// Who uses a connection holds a place in one of these: creates never wait behind reads.
	lanes, others chan struct{}
}

var _ store.Store = (*Store)(nil)

// Options say how a database is opened.
type Options struct {
	// UnsafeDurability accepts a server that can lose what it has confirmed.
	UnsafeDurability bool
}

const (
	defaultConns = 8 // connections in use at most, unless the URL says pool_max_conns
	maxLanes     = 4 // more batches at once make each of them smaller and commit no more plants

	connectTimeout = 3 * time.Second // unless the URL says connect_timeout
	pingTimeout    = time.Second     // of a connection that was idle for a while

	writeTimeout   = 8 * time.Second // of a write with all its attempts
	attemptTimeout = 4 * time.Second // of one attempt: longer than a lock is waited for
	readTimeout    = 5 * time.Second
	closeTimeout   = writeTimeout + time.Second
)

// What the server shall give up by itself, even when it can't be told to. The URL may set others.
var timeouts = map[string]string{
	"lock_timeout":                        "3s", // an attempt then ends with a certain answer: nothing was stored
	"statement_timeout":                   "30s",
	"idle_in_transaction_session_timeout": "30s",
}

// What every session needs, whatever the URL or the role of the user say.
var required = map[string]string{
	"application_name":              "plantstore",
	"client_encoding":               "UTF8",
	"client_min_messages":           "warning", // a commit that no standby has confirmed is told by a warning
	"default_transaction_isolation": "read committed",
}

// Open connects to the database at a postgres:// URL and brings its schema up to date.
//
// It refuses a server whose settings can lose what it has confirmed. Its errors are sentences
// for an operator and never hold the password.
func Open(ctx context.Context, address string, opts Options) (*Store, error) {
	config, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	s := &Store{opts: opts, opened: time.Now()}
	s.taken.Store(int64(-caution))
	if err := s.open(ctx, config); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", shown(config.ConnConfig), err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, config *pgxpool.Config) error {
	if err := migrate(ctx, config.ConnConfig, s.opts); err != nil {
		return err
	}
	conns := int(config.MaxConns)
	lanes := max(1, min(maxLanes, conns/2))
	s.lanes = make(chan struct{}, lanes)
	s.others = s.lanes
	if conns > lanes {
		s.others = make(chan struct{}, conns-lanes)
	}
	// A connection whose network hangs takes a while to close, and counts until then.
	// What may be in use at once is bounded above.
	config.MaxConns = int32(2 * conns)
	config.PingTimeout = pingTimeout
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return begin(ctx, conn, s.opts) }
	config.BeforeClose = func(conn *pgx.Conn) {
		if conn.IsClosed() {
			s.pool.Reset() // it was lost: the others lead to the same server, and are likely to be dead too
		}
	}
	var err error
	s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return translate(err)
	}
	if err := s.Check(ctx); err != nil {
		s.pool.Close()
		return err
	}
	return nil
}

// parse reads the URL. The driver's errors about it may quote it, so none is passed on.
func parse(address string) (*pgxpool.Config, error) {
	if !IsURL(address) {
		return nil, errors.New("the address is not one of PostgreSQL: expected postgres://user:password@host:port/database")
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil || strayAt(address) {
		return nil, errors.New("the URL can't be read: expected postgres://user:password@host:port/database?setting=value, " +
			"with % and two hexadecimal digits for characters such as @ : / ? # % in a name, password or value, " +
			"settings such as sslmode and pool_max_conns with values they can have, and files that can be read")
	}
	params := config.ConnConfig.RuntimeParams
	for name, value := range timeouts {
		if params[name] == "" && !strings.Contains(params["options"], name) {
			params[name] = value
		}
	}
	for name, value := range required {
		params[name] = value
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if !strings.Contains(address, "pool_max_conns=") {
		config.MaxConns = defaultConns
	}
	config.ConnConfig.OnNotice = noteWarning
	return config, nil
}

// strayAt reports whether there is an @ that does not end the user and password. Then a part of
// the password may have been read as something else, which an error would show.
func strayAt(address string) bool {
	_, rest, _ := strings.Cut(address, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return strings.Count(rest[:end], "@") > 1 || strings.Contains(rest[end:], "@")
}

// IsURL reports whether a --db value names a PostgreSQL server.
func IsURL(db string) bool {
	return strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://")
}

// shown is the URL of a database as an operator may see it.
func shown(config *pgx.ConnConfig) string {
	host := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	return (&url.URL{Scheme: "postgres", User: url.User(config.User), Host: host, Path: "/" + config.Database}).String()
}

// Lanes is how many batches under way at once pay off.
func (s *Store) Lanes() int { return cap(s.lanes) }

// Check implements store.Store.
func (s *Store) Check(ctx context.Context) error {
	// As in read, a caller who goes away costs no connection.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return translate(err)
	}
	defer conn.Release()
	if err := checkSettings(ctx, conn.Conn(), s.opts); err != nil {
		s.distrust(err)
		return err
	}
	// A batch of no plants meets every lock, right and read-only mode that a create would meet.
	none := newBatch(nil)
	defer none.recycle()
	if _, err := none.insert(ctx, conn.Conn(), nil); err != nil {
		return translate(err)
	}
	return translate(confirm(ctx, conn.Conn()))
}

// Close implements store.Store.
func (s *Store) Close() error {
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
	case <-time.After(closeTimeout): // all that is left are connections whose network hangs
	}
	return nil
}

var errClosed = fmt.Errorf("%w: it was closed", store.ErrUnavailable)

func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	conn, err := s.pool.Acquire(ctx)
	s.distrust(err)
	return conn, err
}

// distrust ends the sessions that are open where err says that none of them is safe any more: they were
// checked when they began, and would go on confirming what the server can lose.
func (s *Store) distrust(err error) {
	if _, ok := errors.AsType[unsafeServer](err); ok {
		s.pool.Reset()
	}
}

const warned = "warned" // in a connection's custom data: *bool, whether the server has warned

// begin makes a new connection one of the pool, if what it will confirm is safe.
func begin(ctx context.Context, conn *pgx.Conn, opts Options) error {
	conn.PgConn().CustomData()[warned] = new(bool)
	return checkSettings(ctx, conn, opts)
}

func noteWarning(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if flag, ok := conn.CustomData()[warned].(*bool); ok && notice.SeverityUnlocalized == "WARNING" {
		*flag = true
	}
}

// errWarned: the server has committed and warned. That is how it says that the wait for a
// standby was cut short, which makes a commit that a failover would lose.
var errWarned = fmt.Errorf("%w: the server warned that what it committed may not be on its standby", store.ErrUnavailable)

// sayNothing forgets the warnings of a connection, and heard reports those since as an error.
func sayNothing(conn *pgx.Conn) { *conn.PgConn().CustomData()[warned].(*bool) = false }

func heard(conn *pgx.Conn) error {
	if *conn.PgConn().CustomData()[warned].(*bool) {
		return errWarned
	}
	return nil
}

// Setting synchronous_commit to what it is keeps a reload of the server's configuration from
// weakening a session that was checked.
const selectSettings = `
	SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding'),
		set_config('synchronous_commit', current_setting('synchronous_commit'), false)`

// unsafeServer is the refusal of a server for a setting that holds for all its sessions at once.
type unsafeServer struct{ error }

func (e unsafeServer) Unwrap() error { return e.error }

// checkSettings refuses a server that would confirm what it can lose, or that can't hold every text.
func checkSettings(ctx context.Context, conn *pgx.Conn, opts Options) error {
	var fsync, fullPages, encoding, commit string
	err := conn.QueryRow(ctx, selectSettings, pgx.QueryExecModeSimpleProtocol).Scan(&fsync, &fullPages, &encoding, &commit)
	if err != nil {
		return translate(err)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("%w: its encoding is %s and not every text can be stored in it; create it with ENCODING 'UTF8'", store.ErrUnavailable, encoding)
	}
	if opts.UnsafeDurability {
		return nil
	}
	const risk = "%w: the server runs with %s=%s, so %s; set it to on or, if that loss is acceptable, start with --unsafe-durability"
	switch {
	case fsync != "on":
		return unsafeServer{fmt.Errorf(risk, store.ErrUnavailable, "fsync", fsync, "a power loss can destroy the database and plants that were confirmed")}
	case fullPages != "on":
		return unsafeServer{fmt.Errorf(risk, store.ErrUnavailable, "full_page_writes", fullPages, "a power loss can destroy pages of the database")}
	case commit != "on" && commit != "remote_apply":
		// remote_write and local are as good as on without a standby, and lose plants with one.
		return fmt.Errorf(risk, store.ErrUnavailable, "synchronous_commit", commit, "plants can be lost after they were confirmed")
	}
	return nil
}
