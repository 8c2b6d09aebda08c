package postgres

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5"
)

// session is the state of a connection, in the custom data of its pgconn.PgConn.
//
// A connection to a pooler such as PgBouncer is pooled: each transaction may run in another session of the server,
// and other programs use these sessions too. So nothing is set in them that outlives a transaction, and no
// statement is prepared by name. Instead, each write sets its settings for its own transaction, in the same round
// trip. Reads need no settings.
type session struct {
	settings      map[string]string // of every transaction
	names, values []string          // of the settings, as parameters of applySettings

	cluster Cluster // nil: the connection is to one server, or not of the pool
	warned  bool    // by the server, since the last pipeline was started; see recordWarning
	pooled  bool    // the connection is to a pooler
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

// takeSettings removes the settings from a configuration that are set after connecting, and returns them. Others of the
// URL are sent when a connection is opened, and PgBouncer refuses them: reads would not have them.
func takeSettings(config *pgx.ConnConfig) map[string]string {
	settings := maps.Clone(config.RuntimeParams)
	maps.DeleteFunc(settings, func(name, _ string) bool {
		return defaultSettings[name] == "" && fixedSettings[name] == "" && name != "synchronous_commit"
	})
	for name := range settings {
		delete(config.RuntimeParams, name)
	}
	return settings
}

// Connect opens a connection outside of the pool. It has no prepared statements.
func Connect(ctx context.Context, config *pgx.ConnConfig, opts Options) (*pgx.Conn, error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	settings := takeSettings(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, Translate(err)
	}
	if err := startSession(ctx, conn, settings, opts); err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// query runs a read. Behind a pooler, its statement is not prepared.
func query(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (pgx.Rows, error) {
	return conn.Query(ctx, sql, withMode(conn, args)...)
}

// queryRow is query for at most one row.
func queryRow(ctx context.Context, conn *pgx.Conn, sql string, args ...any) pgx.Row {
	return conn.QueryRow(ctx, sql, withMode(conn, args)...)
}

func withMode(conn *pgx.Conn, args []any) []any {
	if !sessionOf(conn).pooled {
		return args
	}
	return append([]any{pgx.QueryExecModeExec}, args...)
}

const (
	// The server sends the number of its process when a connection is opened; a pooler sends a random number. Another
	// program may have changed synchronous_commit in a pooled session.
	selectPooled = `
		SELECT pg_backend_pid() <> $1::bigint, CASE pg_backend_pid() WHEN $1::bigint THEN setting ELSE reset_val END
		FROM pg_settings WHERE name = 'synchronous_commit'`

	applySettings = `
		SELECT set_config(name, value, $3::boolean) FROM unnest($1::text[], $2::text[]) AS setting (name, value)`

	selectSettings = `
		SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
			current_setting('server_encoding')`
)

// startSession finds out whether a new connection is pooled, gives its session the settings if it is not, and checks
// the server.
//
// Setting synchronous_commit to its current value keeps a later reload of the server's configuration from
// changing it for this connection.
func startSession(ctx context.Context, conn *pgx.Conn, settings map[string]string, opts Options) error {
	s := sessionOf(conn)
	var commit string
	row := conn.QueryRow(ctx, selectPooled, pgx.QueryExecModeSimpleProtocol, int64(conn.PgConn().PID()))
	if err := row.Scan(&s.pooled, &commit); err != nil {
		return Translate(err)
	}
	s.settings = map[string]string{"synchronous_commit": commit}
	maps.Copy(s.settings, settings)
	for name, value := range s.settings {
		s.names, s.values = append(s.names, name), append(s.values, value)
	}
	if !s.pooled {
		if _, err := conn.Exec(ctx, applySettings, pgx.QueryExecModeExec, s.names, s.values, false); err != nil {
			return Translate(err)
		}
	}
	return checkSettings(ctx, conn, opts)
}

// readSettings returns the settings of the server that concern its safety.
func readSettings(ctx context.Context, conn *pgx.Conn) (server ServerSettings, err error) {
	row := conn.QueryRow(ctx, selectSettings, pgx.QueryExecModeSimpleProtocol)
	err = row.Scan(&server.Fsync, &server.FullPageWrites, &server.SynchronousCommit, &server.Encoding)
	if s := sessionOf(conn); s.pooled {
		server.SynchronousCommit = s.settings["synchronous_commit"]
	}
	return server, err
}
