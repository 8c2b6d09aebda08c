package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/internal/plant"
)

// EditBatch implements store.Plants.
//
// It is not repeatable: after an attempt that succeeded, a second one would find the plants changed or removed.
func (s *Store) EditBatch(_ context.Context, edits []plant.Edit) ([]plant.Outcome, error) {
	if len(edits) == 0 {
		return nil, nil
	}
	order := plant.ByKey(edits)
	outcomes := make([]plant.Outcome, len(edits))
	err := s.write(s.otherSlots, false, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		return sendEdits(ctx, conn, edits, order, outcomes)
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// sendEdits makes edits in one transaction and one round trip, and sets their outcomes.
//
// A plant that an edit expects to be unchanged is locked first. If the edit then changes no row, the result of the
// lock tells whether the plant is absent or different: no other transaction can have changed it in between.
func sendEdits(
	ctx context.Context, conn *pgx.Conn, edits []plant.Edit, order []int, outcomes []plant.Outcome,
) (stored bool, err error) {
	clearWarning(conn)
	p := pipeline{conn: conn, session: sessionOf(conn)}
	// Citus commits each statement by itself unless there is a BEGIN.
	single := len(edits) == 1 && edits[0].Seen == nil
	if !single {
		p.addControl("BEGIN")
	}
	if p.session.pooled {
		p.addControl(setIsolation)
		p.addControl(p.session.setLocal)
	}
	first := p.statements
	for _, i := range order {
		if err := p.addEdit(ctx, &edits[i]); err != nil {
			return false, err
		}
	}
	if !single {
		p.addControl("COMMIT")
	}
	rows, err := p.send(ctx)
	if err != nil {
		return mayBeStored(err, p.session.citus), err
	}
	if len(rows) != p.statements {
		return true, fmt.Errorf("the server returned %d results of %d statements", len(rows), p.statements)
	}
	rows = rows[first:]
	for _, i := range order {
		locked := false
		if edits[i].Seen != nil {
			locked, rows = rows[0] > 0, rows[1:]
		}
		outcomes[i], rows = outcomeOfEdit(&edits[i], locked, rows[0] > 0), rows[1:]
	}
	return true, checkWarning(conn)
}

// outcomeOfEdit returns the outcome of an edit that has locked and changed a row, or not.
func outcomeOfEdit(e *plant.Edit, locked, changed bool) plant.Outcome {
	switch {
	case changed && e.To != nil:
		return plant.Replaced
	case changed:
		return plant.Removed
	case locked:
		return plant.Changed
	}
	return plant.Absent
}

// pipeline is statements that are sent at once.
type pipeline struct {
	conn       *pgx.Conn
	session    *session
	batch      pgconn.Batch
	statements int
}

// addControl adds a statement without parameters that is not prepared.
func (p *pipeline) addControl(sql string) {
	p.batch.ExecParams(sql, nil, nil, nil, nil)
	p.statements++
}

// addEdit adds the statements of an edit.
func (p *pipeline) addEdit(ctx context.Context, e *plant.Edit) error {
	key := [][]byte{[]byte(e.Store), binary.BigEndian.AppendUint64(nil, uint64(e.ID))}
	sql, params := removePlant, key
	if e.To != nil {
		sql, params = replacePlant, appendPlant(params, e.To)
	}
	if e.Seen == nil {
		return p.add(ctx, sql, params)
	}
	if sql = removeIfEqual; e.To != nil {
		sql = replaceIfEqual
	}
	return cmp.Or(p.add(ctx, lockPlant, key), p.add(ctx, sql, appendPlant(params, e.Seen)))
}

// appendPlant appends a name and a tag in PostgreSQL's binary format.
func appendPlant(params [][]byte, p *plant.Plant) [][]byte {
	if p.Tag == nil {
		return append(params, []byte(p.Name), nil)
	}
	return append(params, []byte(p.Name), []byte(*p.Tag))
}

// add adds a statement with encoded parameters, and prepares it if the session is not pooled.
func (p *pipeline) add(ctx context.Context, sql string, params [][]byte) error {
	p.statements++
	if p.session.pooled {
		p.batch.ExecParams(sql, params, nil, binaryFormat, nil)
		return nil
	}
	statement, err := p.conn.Prepare(ctx, sql, sql)
	if err == nil {
		p.batch.ExecStatement(statement, params, binaryFormat, nil)
	}
	return err
}

// send returns how many rows each statement has changed or locked, once the transaction has ended.
func (p *pipeline) send(ctx context.Context) (rows []int64, err error) {
	all := p.conn.PgConn().ExecBatch(ctx, &p.batch)
	for all.NextResult() {
		tag, _ := all.ResultReader().Close() // all has the error too
		rows = append(rows, tag.RowsAffected())
	}
	if _, err = (insertResult{all: all}).Close(); err != nil && p.conn.PgConn().TxStatus() == 'E' {
		p.conn.PgConn().Exec(ctx, "ROLLBACK").Close() // or the pool closes the connection
	}
	return rows, err
}
