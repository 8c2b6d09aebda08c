package sqlite

import (
	"context"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage/tables"
	"plantstore/internal/token"
)

// database implements tables.DB.
type database struct{ *Storage }

func (d database) Read(ctx context.Context, _ tables.Purpose, text string, args ...any) (rows [][]any, err error) {
	for stmt, err := range d.readers.rows(ctx, text, args...) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, valuesOf(stmt))
	}
	return rows, nil
}

func valuesOf(stmt *sqlite.Stmt) []any {
	row := make([]any, stmt.ColumnCount())
	for i := range row {
		switch stmt.ColumnType(i) {
		case sqlite.TypeInteger:
			row[i] = stmt.ColumnInt64(i)
		case sqlite.TypeText:
			row[i] = stmt.ColumnText(i)
		case sqlite.TypeBlob:
			blob := make([]byte, stmt.ColumnLen(i))
			stmt.ColumnBytes(i, blob)
			row[i] = blob
		case sqlite.TypeFloat: // of no column
			row[i] = stmt.ColumnFloat(i)
		}
	}
	return row
}

func (d database) Write(_ bool, statements ...tables.Statement) (changed int64, err error) {
	err = d.writer.tx(func() error {
		for _, s := range statements {
			if err := exec(d.writer.conn, s.SQL, s.Args...); err != nil {
				return err
			}
			changed += int64(d.writer.conn.Changes())
		}
		return nil
	})
	return changed, err
}

func (s *Storage) ChangeToken(_ context.Context, before, after token.Token, add *token.Token) error {
	return s.writer.tx(func() error {
		err := s.writer.execOne(token.ErrChanged, tables.ChangeToken(before, after))
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
			return token.ErrNameTaken
		}
		if err == nil && add != nil {
			err = s.writer.execOne(token.ErrNameTaken, tables.AddToken(*add))
		}
		return err
	})
}

const recordUse = "UPDATE tokens SET last_used = $1 WHERE hash = $2 AND coalesce(last_used, 0) < $1"

func (s *Storage) RecordUses(_ context.Context, uses []token.Use) error {
	var all []tables.Statement
	for _, use := range uses {
		all = append(all, tables.Statement{SQL: recordUse, Args: []any{use.At.UnixMilli(), use.Hash[:]}})
	}
	_, err := database{s}.Write(true, all...)
	return err
}
