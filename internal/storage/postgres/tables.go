package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage/tables"
	"plantstore/internal/token"
)

// database implements tables.DB.
type database struct{ *Storage }

func (d database) Read(ctx context.Context, purpose tables.Purpose, sql string, args ...any) (all [][]any, err error) {
	slots, timeout := d.otherSlots, d.timeouts.Read
	switch purpose {
	case tables.Lookup:
		slots = d.tokenSlots
	case tables.Count:
		timeout = countTimeout
	}
	err = d.read(ctx, slots, timeout, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := query(ctx, conn, sql, args...)
		if err == nil {
			all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		}
		return err
	})
	return all, err
}

func (d database) Write(repeatable bool, statements ...tables.Statement) (changed int64, err error) {
	err = d.write(d.otherSlots, repeatable, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		changed, stored, err = exec(ctx, conn, statements...)
		return stored, err
	})
	return changed, err
}

const (
	rotateToken = "WITH changed AS (%s RETURNING hash) INSERT INTO tokens (" + tables.TokenColumns + `)
		SELECT $12, $13::bytea, $14, $15, $16, $17::bigint, $18::bigint, $19, $20::bigint, $21::bigint FROM changed`
	// One statement: a Citus cluster writes each to every node.
	recordUses = `
		UPDATE tokens SET last_used = used.at FROM unnest($1::bytea[], $2::bigint[]) AS used (hash, at)
		WHERE tokens.hash = used.hash AND coalesce(last_used, 0) < used.at`
)

func (s *Storage) ChangeToken(_ context.Context, before, after token.Token, add *token.Token) error {
	change := tables.ChangeToken(before, after)
	if add != nil {
		change.SQL = fmt.Sprintf(rotateToken, change.SQL)
		change.Args = append(change.Args, tables.AddToken(*add).Args...)
	}
	changed, err := database{s}.Write(false, change)
	switch {
	case hasCode(err, uniqueViolation):
		return token.ErrNameTaken
	case err == nil && changed == 0:
		return token.ErrChanged
	}
	return err
}

func (s *Storage) RecordUses(_ context.Context, uses []token.Use) error {
	hashes, times := make([][]byte, len(uses)), make([]int64, len(uses))
	for i, use := range uses {
		hashes[i], times[i] = use.Hash[:], use.At.UnixMilli()
	}
	_, err := database{s}.Write(true, tables.Statement{SQL: recordUses, Args: []any{hashes, times}})
	return err
}
