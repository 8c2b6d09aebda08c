package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/storage"
	"plantstore/internal/storage/tables"
)

// errUnsafe is the refusal of a server for its settings.
var errUnsafe = fmt.Errorf("%w", storage.ErrUnavailable)

// checkSettings refuses a server that can lose confirmed data, or that can't store every text.
func checkSettings(ctx context.Context, conn *pgx.Conn, opts Options) error {
	settings, err := readSettings(ctx, conn)
	if err != nil {
		return Translate(err)
	}
	if problem := settings.Problem("the server", opts); problem != "" {
		return fmt.Errorf("%w: %s", errUnsafe, problem)
	}
	return nil
}

// ServerSettings are those of a session that decide whether a server keeps what it confirms.
type ServerSettings struct{ Fsync, FullPageWrites, SynchronousCommit, Encoding string }

// Problem describes why a server is refused, or is empty.
func (s ServerSettings) Problem(server string, opts Options) string {
	if s.Encoding != "UTF8" {
		return fmt.Sprintf("%s has the encoding %s, which can't represent every text; "+
			"create a database with ENCODING 'UTF8'", server, s.Encoding)
	}
	if opts.UnsafeDurability || opts.ReadOnly {
		return ""
	}
	refuse := func(setting, value, risk string) string {
		return fmt.Sprintf("%s runs with %s=%s, so %s; set it to on or, if that loss is acceptable, "+
			"start with --unsafe-durability", server, setting, value, risk)
	}
	switch {
	case s.Fsync != "on":
		return refuse("fsync", s.Fsync, "a power loss can destroy the database")
	case s.FullPageWrites != "on":
		return refuse("full_page_writes", s.FullPageWrites, "a power loss can destroy pages of the database")
	case s.SynchronousCommit != "on" && s.SynchronousCommit != "remote_apply":
		// remote_write and local are as safe as on without a synchronous standby, but not with one.
		return refuse("synchronous_commit", s.SynchronousCommit, "plants can be lost after they were confirmed")
	}
	return ""
}

func recordWarning(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if s, ok := conn.CustomData()[sessionKey].(*session); ok && notice.SeverityUnlocalized == "WARNING" {
		s.warned = true
	}
}

// errNotReplicated is the error of a commit that ended with a warning. That is how the server reports that
// the wait for a synchronous standby was cancelled: the commit is on its disk, but a failover would lose it.
var errNotReplicated = fmt.Errorf("%w: the server warned that the commit may not be on its standby",
	storage.ErrUnavailable)

// A plant that is visible is on the server's disk, but perhaps not on a synchronous standby: its commit may
// have been cancelled, or the server restarted, during the wait. The commit of a message that is written to
// the log after the plant waits for both.
const emitMessage = `
	SELECT CASE WHEN current_setting('synchronous_standby_names') <> ''
		THEN pg_logical_emit_message(true, 'plantstore', '') END`

// waitForStandby returns when everything that was visible before is as durable as a new commit.
func waitForStandby(ctx context.Context, conn *pgx.Conn) error {
	_, _, err := exec(ctx, conn, tables.Statement{SQL: emitMessage})
	return err
}
