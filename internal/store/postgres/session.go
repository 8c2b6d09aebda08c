package postgres

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/store"
)

// session is the state of a connection, in the custom data of its pgconn.PgConn.
//
// A connection to a pooler such as PgBouncer is pooled: each transaction may run in another session of the server,
// and other programs use these sessions too. So nothing is set in them that outlives a transaction, and no
// statement is prepared by name. Instead, each write sets its settings for its own transaction, in the same round
// trip. Reads need no settings.
type session struct {
	settings map[string]string
	warned   bool // the server has sent a warning, see recordWarning
	citus    bool // the database has the extension

	pooled   bool   // set by readSettings, like the following
	commit   string // synchronous_commit of every transaction, if pooled
	setLocal string // a statement that applies the settings to a transaction, if pooled
}

const sessionKey = "session"

func sessionOf(conn *pgx.Conn) *session {
	s, ok := conn.PgConn().CustomData()[sessionKey].(*session)
	if !ok {
		s = new(session)
		conn.PgConn().CustomData()[sessionKey] = s
	}
	return s
}

// startupParams are sent when a connection is opened. PgBouncer refuses almost all others.
var startupParams = []string{"application_name", "client_encoding", "options"}

// takeSettings removes the parameters from a configuration that are to be set after connecting, and returns them.
func takeSettings(config *pgx.ConnConfig) map[string]string {
	settings := maps.Clone(config.RuntimeParams)
	for _, name := range startupParams {
		delete(settings, name)
	}
	for name := range settings {
		delete(config.RuntimeParams, name)
	}
	return settings
}

// connect opens a connection outside of the pool. It has no prepared statements.
func connect(ctx context.Context, config *pgx.ConnConfig, opts Options) (*pgx.Conn, error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	settings := takeSettings(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, translate(err)
	}
	if err := initConn(ctx, conn, settings, opts); err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// initConn applies the settings to a new connection, and refuses it if the server is unsafe.
func initConn(ctx context.Context, conn *pgx.Conn, settings map[string]string, opts Options) error {
	s := sessionOf(conn)
	s.settings = settings
	if err := checkSettings(ctx, conn, opts); err != nil {
		return err
	}
	for name := range settings {
		_, isDefault := defaultSettings[name]
		_, isFixed := fixedSettings[name]
		_, isCitus := citusSettings[name]
		if s.pooled && !isDefault && !isFixed && !isCitus && name != "synchronous_commit" {
			return fmt.Errorf("%w: the URL sets %s, which a connection pooler does not support; "+
				"remove it from the URL and set it with ALTER ROLE … SET, or connect to the server directly",
				store.ErrUnavailable, name)
		}
	}
	return nil
}

// The process number that a server sends when a connection is opened is that of the session; a pooler sends a
// random number. In a session of its own, a connection applies the settings; for a pooled one, the statement that
// applies them to a transaction is returned. Another program may have changed synchronous_commit in a pooled session.
//
// Setting synchronous_commit to its current value keeps a later reload of the server's configuration from
// changing it for this session.
const selectSettings = `
	SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding'),
		pg_backend_pid() <> $1::bigint,
		(SELECT coalesce(string_agg(CASE WHEN pg_backend_pid() = $1::bigint THEN set_config(name, value, false)
			ELSE format('set_config(%L, %L, true), ', name, value) END, ''), '')
			FROM unnest($2::text[], $3::text[]) AS setting (name, value)),
		CASE WHEN pg_backend_pid() = $1::bigint
			THEN set_config('synchronous_commit', current_setting('synchronous_commit'), false)
			ELSE (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit') END`

// readSettings applies the settings of a session, and returns those of the server that concern its safety.
func (s *session) readSettings(ctx context.Context, conn *pgx.Conn) (server settings, err error) {
	names := slices.Sorted(maps.Keys(s.settings))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = s.settings[name]
	}
	var calls string
	row := conn.QueryRow(ctx, selectSettings, pgx.QueryExecModeSimpleProtocol,
		int64(conn.PgConn().PID()), names, values)
	err = row.Scan(&server.Fsync, &server.FullPageWrites, &server.Encoding, &s.pooled, &calls, &server.SynchronousCommit)
	if err != nil || !s.pooled {
		return server, err
	}
	// As in a session of its own, the first value stays.
	s.commit = cmp.Or(s.commit, s.settings["synchronous_commit"], server.SynchronousCommit)
	server.SynchronousCommit = s.commit
	s.setLocal = "SELECT " + calls + "set_config('synchronous_commit', '" + s.commit + "', true)"
	return server, nil
}

// errPooled is the error of a connection that was opened with the wrong mode for a pooler. The next one has the right
// mode.
var errPooled = fmt.Errorf("%w: it is behind a connection pooler", store.ErrUnavailable)

// poolerHint says what to do about an error of PgBouncer. All its errors have the same code, so it reads the message.
func poolerHint(message string) string {
	switch {
	case strings.HasPrefix(message, "unsupported startup parameter"):
		return "; the connection pooler refuses it; set it as a parameter of the URL, such as lock_timeout=3s, " +
			"or connect to the server directly"
	case strings.Contains(message, "statement pooling mode"):
		return "; use pool_mode = transaction or session"
	}
	return ""
}

// pooledMode sends each statement with its text, and describes it once for each connection. It never uses a prepared
// statement in another transaction than the one that prepared it.
const pooledMode = pgx.QueryExecModeCacheDescribe

// setIsolation must be the first statement of a transaction. It is not SET LOCAL, which warns if the transaction has
// no BEGIN; the effect is the same.
const setIsolation = "SET transaction_isolation = 'read committed'"

// execPooled runs a statement in a transaction with the settings.
func (s *session) execPooled(ctx context.Context, conn *pgx.Conn, sql string, args []any) (pgconn.CommandTag, error) {
	var query pgx.ExtendedQueryBuilder
	if err := query.Build(conn.TypeMap(), nil, args); err != nil {
		return pgconn.CommandTag{}, err
	}
	return s.sendPooled(ctx, conn, sql, query.ParamValues, query.ParamFormats).Close()
}

// sendPooled is execPooled with encoded parameters. The results are in the binary format.
//
// Everything is sent at once: describing the statement first would wait for locks without the settings.
func (s *session) sendPooled(
	ctx context.Context, conn *pgx.Conn, sql string, params [][]byte, formats []int16,
) insertResult {
	var b pgconn.Batch
	b.ExecParams(setIsolation, nil, nil, nil, nil)
	b.ExecParams(s.setLocal, nil, nil, nil, nil)
	b.ExecParams(sql, params, nil, formats, binaryFormat)
	all := conn.PgConn().ExecBatch(ctx, &b)
	for range 2 {
		if all.NextResult() {
			all.ResultReader().Close()
		}
	}
	if !all.NextResult() {
		return insertResult{all: all}
	}
	return insertResult{all.ResultReader(), all}
}

// insertResult is the result of a statement, which may follow others in its transaction.
type insertResult struct {
	*pgconn.ResultReader                           // nil if an earlier statement failed
	all                  *pgconn.MultiResultReader // nil if there is only one statement
}

func (r insertResult) NextRow() bool { return r.ResultReader != nil && r.ResultReader.NextRow() }

// Close returns when the transaction has ended. It returns the error of the commit too.
func (r insertResult) Close() (tag pgconn.CommandTag, err error) {
	if r.ResultReader != nil {
		tag, err = r.ResultReader.Close()
	}
	if r.all != nil {
		err = cmp.Or(err, r.all.Close())
	}
	if r.all != nil && pgconn.SafeToRetry(err) {
		err = lostError{err}
	}
	return tag, err
}

// lostError is the error of a connection that was lost after a batch was sent. pgconn.MultiResultReader reports that
// as an error that is safe to retry, because it reads again from the connection that it has closed.
type lostError struct{ error }

func (e lostError) SafeToRetry() bool { return false }
func (e lostError) Unwrap() error     { return io.ErrUnexpectedEOF }
