package postgres

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/storage/tables"
)

// pipeline is the statements of one transaction, which are sent at once. Every write is one.
//
// Behind a pooler, the first statements apply the settings to the transaction. Sending everything at once also means
// that no statement waits for a lock without them.
type pipeline struct {
	conn  *pgx.Conn
	batch pgconn.Batch
	sent  int // statements
	first int // statements before the first one that changes or reads data
	begun bool
	err   error // of adding a statement: nothing is sent
}

// setIsolation must be the first statement of a transaction. It is not SET LOCAL, which warns if the transaction has
// no BEGIN; the effect is the same.
const setIsolation = "SET transaction_isolation = 'read committed'"

// newPipeline starts a transaction. It needs a BEGIN if it has several statements, because a cluster commits each
// statement by itself otherwise.
func newPipeline(ctx context.Context, conn *pgx.Conn, begin bool) *pipeline {
	p, s := &pipeline{conn: conn, begun: begin}, sessionOf(conn)
	s.warned = false
	if begin {
		p.addText("BEGIN")
	}
	if s.pooled {
		p.addText(setIsolation)
		p.add(ctx, applySettings, s.names, s.values, true)
	}
	p.first = p.sent
	return p
}

// addText adds a statement without parameters. It is not prepared.
func (p *pipeline) addText(sql string) {
	p.batch.ExecParams(sql, nil, nil, nil, nil)
	p.sent++
}

// add adds a statement, whose error commit returns. It is prepared once for each connection, unless that reaches a
// pooler.
func (p *pipeline) add(ctx context.Context, sql string, args ...any) {
	var statement *pgconn.StatementDescription
	pooled := sessionOf(p.conn).pooled
	if !pooled && p.err == nil {
		statement, p.err = p.conn.Prepare(ctx, sql, sql)
	}
	var query pgx.ExtendedQueryBuilder
	if p.err == nil {
		p.err = query.Build(p.conn.TypeMap(), statement, args)
	}
	if p.err != nil {
		return
	}
	p.sent++
	if pooled {
		p.batch.ExecParams(sql, query.ParamValues, nil, query.ParamFormats, nil)
	} else {
		p.batch.ExecStatement(statement, query.ParamValues, query.ParamFormats, query.ResultFormats)
	}
}

// commit sends the statements, and returns how many rows each has changed or returned once the transaction has ended.
// If it fails, stored reports whether data may be stored all the same.
func (p *pipeline) commit(ctx context.Context) (rows []int64, stored bool, err error) {
	if err := cmp.Or(p.err, ctx.Err()); err != nil {
		return nil, false, err // nothing is sent
	}
	if p.begun {
		p.addText("COMMIT")
	}
	all := p.conn.PgConn().ExecBatch(ctx, &p.batch)
	for all.NextResult() {
		tag, _ := all.ResultReader().Close() // all has the error too
		rows = append(rows, tag.RowsAffected())
	}
	// The server sends the rows before it commits: only this returns an error of the commit.
	if err := all.Close(); err != nil {
		// After the connection was lost, pgconn.MultiResultReader reads from it again, and returns an error that says that
		// nothing was sent.
		if pgconn.SafeToRetry(err) {
			err = fmt.Errorf("%w: %v", io.ErrUnexpectedEOF, err)
		}
		if p.conn.PgConn().TxStatus() == 'E' {
			p.conn.PgConn().Exec(ctx, "ROLLBACK").Close() // or the pool closes the connection
		}
		return nil, mayBeStored(err, sessionOf(p.conn).cluster), err
	}
	switch {
	case len(rows) != p.sent:
		return nil, true, fmt.Errorf("the server returned %d results of %d statements", len(rows), p.sent)
	case sessionOf(p.conn).warned:
		return nil, true, errNotReplicated
	}
	return rows[p.first:], true, nil
}

// exec runs statements as a transaction and returns the number of rows that they changed.
func exec(
	ctx context.Context, conn *pgx.Conn, statements ...tables.Statement,
) (changed int64, stored bool, err error) {
	p := newPipeline(ctx, conn, len(statements) != 1)
	for _, s := range statements {
		p.add(ctx, s.SQL, s.Args...)
	}
	rows, stored, err := p.commit(ctx)
	for _, n := range rows {
		changed += n
	}
	return changed, stored, err
}
