package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/rate"
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
	var rows int64
	err := s.write(s.others, false, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		rows, stored, err = exec(ctx, conn, addToken,
			t.Name, t.Hash[:], t.Store, t.Scopes.String(), t.Tail, millis(t.Created), millis(t.Expires),
			orNull(t.Rate.String()), orNull(t.Rate.Burst))
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
	err := s.write(s.others, true, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		rows, stored, err = exec(ctx, conn, revokeToken, millis(at), name)
		return stored, err
	})
	if err == nil && rows == 0 {
		err = token.ErrUnknown
	}
	return err
}

// TokenByHash implements store.Tokens.
func (s *Store) TokenByHash(ctx context.Context, hash token.Hash) (t token.Token, err error) {
	err = s.read(ctx, readTimeout, func(ctx context.Context, conn *pgx.Conn) (err error) {
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
	var t token.Token
	var hash []byte
	var scopes string
	var created, expires, revoked, burst *int64
	var limit *string
	err := row.Scan(&t.Name, &hash, &t.Store, &scopes, &t.Tail, &created, &expires, &revoked, &limit, &burst)
	if err == nil && limit != nil && burst != nil {
		t.Rate, err = rate.Parse(*limit, *burst)
	}
	if err != nil {
		return token.Token{}, err
	}
	copy(t.Hash[:], hash)
	t.Created, t.Expires, t.Revoked = fromMillis(created), fromMillis(expires), fromMillis(revoked)
	t.Scopes = token.StoredScopes(scopes)
	return t, nil
}

// orNull points to a value; for the zero value it is NULL.
func orNull[T string | int64](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.UnixMilli()
	return &n
}

func fromMillis(n *int64) time.Time {
	if n == nil {
		return time.Time{}
	}
	return time.UnixMilli(*n).UTC()
}
