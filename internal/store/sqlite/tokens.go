package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

const (
	addToken    = "INSERT INTO tokens (name, hash, store, scopes, tail, created, expires, rate, burst) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
	tokenFields = "SELECT name, hash, store, scopes, tail, created, expires, revoked, rate, burst FROM tokens"
	tokenByHash = tokenFields + " WHERE hash = ?"
	allTokens   = tokenFields + " ORDER BY created, name"
	revokeToken = "UPDATE tokens SET revoked = coalesce(revoked, ?) WHERE name = ?"
)

// AddToken implements store.Tokens.
func (s *Store) AddToken(_ context.Context, t token.Token) error {
	return s.writer.tx(func() error {
		n, err := s.writer.exec(addToken, t.Name, t.Hash[:], t.Store, t.Scopes.String(), t.Tail, millis(t.Created), millis(t.Expires),
			orNull(t.Rate.String()), orNull(t.Rate.Burst))
		if err == nil && n == 0 {
			err = token.ErrNameTaken
		}
		return err
	})
}

// RevokeToken implements store.Tokens.
func (s *Store) RevokeToken(_ context.Context, name string, at time.Time) error {
	return s.writer.tx(func() error {
		n, err := s.writer.exec(revokeToken, millis(at), name)
		if err == nil && n == 0 {
			err = token.ErrUnknown
		}
		return err
	})
}

// TokenByHash implements store.Tokens.
func (s *Store) TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error) {
	t, err := scanToken(s.token.QueryRowContext(ctx, hash[:]))
	if errors.Is(err, sql.ErrNoRows) {
		return token.Token{}, token.ErrUnknown
	}
	return t, translate(err)
}

// Tokens implements store.Tokens.
func (s *Store) Tokens(ctx context.Context) ([]token.Token, error) {
	rows, err := s.readers.QueryContext(ctx, allTokens)
	if err != nil {
		return nil, translate(err)
	}
	defer rows.Close()
	var all []token.Token
	for rows.Next() {
		t, err := scanToken(rows)
		if err != nil {
			return nil, translate(err)
		}
		all = append(all, t)
	}
	return all, translate(rows.Err())
}

func scanToken(row interface{ Scan(...any) error }) (token.Token, error) {
	var t token.Token
	var hash []byte
	var scopes string
	var created, expires, revoked, burst sql.NullInt64
	var limit sql.NullString
	err := row.Scan(&t.Name, &hash, &t.Store, &scopes, &t.Tail, &created, &expires, &revoked, &limit, &burst)
	if err == nil {
		t.Rate, err = rate.Parse(limit.String, burst.Int64)
	}
	if err != nil {
		return token.Token{}, err
	}
	copy(t.Hash[:], hash)
	t.Created, t.Expires, t.Revoked = fromMillis(created), fromMillis(expires), fromMillis(revoked)
	t.Scopes = token.StoredScopes(scopes)
	return t, nil
}

// orNull is a value, or NULL for the zero value.
func orNull[T string | int64](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

func millis(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

func fromMillis(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMilli(n.Int64).UTC()
}
