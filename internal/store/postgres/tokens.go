package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/token"
)

const (
	addToken = `
		INSERT INTO tokens (name, hash, store, scopes, tail, created, expires, rate, burst)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`
	tokenFields = "SELECT name, hash, store, scopes, tail, created, expires, revoked, rate, burst FROM tokens"
	tokenByHash = tokenFields + " WHERE hash = $1"
	allTokens   = tokenFields + " ORDER BY created, name"
	revokeToken = "UPDATE tokens SET revoked = coalesce(revoked, $1) WHERE name = $2"
)

// AddToken implements store.Tokens.
func (s *Store) AddToken(_ context.Context, t token.Token) error {
	r := t.Row()
	var rows int64
	err := s.write(s.otherSlots, false, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		rows, stored, err = exec(ctx, conn, addToken,
			r.Name, r.Hash, r.Store, r.Scopes, r.Tail, r.Created, r.Expires, r.Rate, r.Burst)
		return stored, err
	})
	if err == nil && rows == 0 {
		err = token.ErrNameTaken
	}
	return err
}

// RevokeToken implements store.Tokens.
func (s *Store) RevokeToken(_ context.Context, name string, at time.Time) error {
	var rows int64
	err := s.write(s.otherSlots, true, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		rows, stored, err = exec(ctx, conn, revokeToken, at.UnixMilli(), name)
		return stored, err
	})
	if err == nil && rows == 0 {
		err = token.ErrUnknown
	}
	return err
}

// TokenByHash implements store.Tokens.
func (s *Store) TokenByHash(ctx context.Context, hash token.Hash) (t token.Token, err error) {
	err = s.readIn(ctx, s.tokenSlots, readTimeout, func(ctx context.Context, conn *pgx.Conn) (err error) {
		t, err = scanToken(conn.QueryRow(ctx, tokenByHash, hash[:]))
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = token.ErrUnknown
	}
	return t, err
}

// Tokens implements store.Tokens.
func (s *Store) Tokens(ctx context.Context) (all []token.Token, err error) {
	err = s.read(ctx, readTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, allTokens)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (token.Token, error) { return scanToken(row) })
		return err
	})
	return all, err
}

func scanToken(row pgx.Row) (token.Token, error) {
	var r token.Row
	err := row.Scan(&r.Name, &r.Hash, &r.Store, &r.Scopes, &r.Tail, &r.Created, &r.Expires, &r.Revoked, &r.Rate, &r.Burst)
	if err != nil {
		return token.Token{}, err
	}
	return r.Token()
}
