package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

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
		r := t.Row()
		n, err := s.writer.exec(addToken, r.Name, r.Hash, r.Store, r.Scopes, r.Tail, r.Created, orNil(r.Expires), orNil(r.Rate), orNil(r.Burst))
		if err == nil && n == 0 {
			err = token.ErrNameTaken
		}
		return err
	})
}

// RevokeToken implements store.Tokens.
func (s *Store) RevokeToken(_ context.Context, name string, at time.Time) error {
	return s.writer.tx(func() error {
		n, err := s.writer.exec(revokeToken, at.UnixMilli(), name)
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
	var r token.Row
	err := row.Scan(&r.Name, &r.Hash, &r.Store, &r.Scopes, &r.Tail, &r.Created, &r.Expires, &r.Revoked, &r.Rate, &r.Burst)
	if err != nil {
		return token.Token{}, err
	}
	return r.Token()
}

// orNil is the value that p points to, or nil.
func orNil[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}
