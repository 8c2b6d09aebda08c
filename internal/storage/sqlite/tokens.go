package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	addToken = `
		INSERT INTO tokens (name, hash, store, scopes, tail, created, expires, rate, burst, last_used)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	tokenColumns = "SELECT name, hash, store, scopes, tail, created, expires, revoked, rate, burst, last_used FROM tokens"
	tokenByHash  = tokenColumns + " WHERE hash = ?"
	allTokens    = tokenColumns + " ORDER BY created, name"
	revokeToken  = "UPDATE tokens SET revoked = coalesce(revoked, ?) WHERE name = ?"
	changeToken  = `
		UPDATE tokens SET name = ?, scopes = ?, expires = ?, rate = ?, burst = ?
		WHERE hash = ? AND name = ? AND scopes = ? AND expires IS ? AND rate IS ? AND burst IS ? AND revoked IS NULL`
	recordUse   = "UPDATE tokens SET last_used = ? WHERE hash = ? AND coalesce(last_used, 0) < ?"
	pruneTokens = "DELETE FROM tokens WHERE (revoked < ? OR expires < ?) AND (? = '' OR store = ?)"
)

func (s *Storage) AddToken(_ context.Context, t token.Token) error {
	return s.writer.tx(func() error { return s.writer.addToken(t) })
}

func (w *writer) addToken(t token.Token) error {
	r := t.Row()
	return w.execOne(token.ErrNameTaken, addToken,
		r.Name, r.Hash, r.Store, r.Scopes, r.Tail, r.Created, r.Expires, r.Rate, r.Burst, r.LastUsed)
}

func (s *Storage) RevokeToken(_ context.Context, name string, at time.Time) error {
	return s.change(token.ErrUnknown, revokeToken, at.UnixMilli(), name)
}

func (s *Storage) ChangeToken(_ context.Context, before, after token.Token, add *token.Token) error {
	was, to := before.Row(), after.Row()
	return s.writer.tx(func() error {
		err := s.writer.execOne(token.ErrChanged, changeToken, to.Name, to.Scopes, to.Expires, to.Rate, to.Burst,
			was.Hash, was.Name, was.Scopes, was.Expires, was.Rate, was.Burst)
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
			return token.ErrNameTaken
		}
		if err == nil && add != nil {
			err = s.writer.addToken(*add)
		}
		return err
	})
}

func (s *Storage) RecordUses(_ context.Context, uses []token.Use) error {
	return changeEach(s, recordUse, uses, func(use token.Use) []any {
		at := use.At.UnixMilli()
		return []any{at, use.Hash[:], at}
	})
}

func (s *Storage) PruneTokens(_ context.Context, store string, before time.Time) (removed int, err error) {
	at := before.UnixMilli()
	err = s.writer.tx(func() error {
		err := exec(s.writer.conn, pruneTokens, at, at, store, store)
		removed = s.writer.conn.Changes()
		return err
	})
	return removed, err
}

func (s *Storage) TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error) {
	return storage.ByHash(collect(ctx, s.readers, tokenOf, tokenByHash, hash[:]))
}

func (s *Storage) Tokens(ctx context.Context) ([]token.Token, error) {
	return collect(ctx, s.readers, tokenOf, allTokens)
}

// tokenOf reads a row of tokenColumns.
func tokenOf(row *sqlite.Stmt) (token.Token, error) {
	hash := make([]byte, row.ColumnLen(1))
	row.ColumnBytes(1, hash)
	r := token.Row{
		Name: row.ColumnText(0), Hash: hash, Store: row.ColumnText(2), Scopes: row.ColumnText(3), Tail: row.ColumnText(4),
		Created: row.ColumnInt64(5), Expires: orNil(row, 6, row.ColumnInt64), Revoked: orNil(row, 7, row.ColumnInt64),
		Rate: orNil(row, 8, row.ColumnText), Burst: orNil(row, 9, row.ColumnInt64), LastUsed: orNil(row, 10, row.ColumnInt64),
	}
	if err := storage.CheckText(&r.Name, &r.Store, &r.Scopes, &r.Tail); err != nil {
		return token.Token{}, err
	}
	t, err := r.Token()
	if err != nil {
		err = fmt.Errorf("%w: %w", err, sqlite.ResultCorrupt.ToError())
	}
	return t, err
}
