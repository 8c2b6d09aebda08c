package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	tokenColumns = "name, hash, store, scopes, tail, created, expires, rate, burst, last_used"
	addToken     = "INSERT INTO tokens (" + tokenColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`
	tokenFields = "SELECT " + tokenColumns + ", revoked FROM tokens"
	tokenByHash = tokenFields + " WHERE hash = $1"
	allTokens   = tokenFields + " ORDER BY created, name"
	revokeToken = "UPDATE tokens SET revoked = coalesce(revoked, $1) WHERE name = $2"
	changeToken = `
		UPDATE tokens SET name = $1, scopes = $2, expires = $3, rate = $4, burst = $5
		WHERE hash = $6 AND name = $7 AND scopes = $8 AND expires IS NOT DISTINCT FROM $9
			AND rate IS NOT DISTINCT FROM $10 AND burst IS NOT DISTINCT FROM $11 AND revoked IS NULL`
	rotateToken = "WITH changed AS (" + changeToken + " RETURNING hash) INSERT INTO tokens (" + tokenColumns + `)
		SELECT $12, $13::bytea, $14, $15, $16, $17::bigint, $18::bigint, $19, $20::bigint, $21::bigint FROM changed`
	recordUses = `
		UPDATE tokens SET last_used = used.at FROM unnest($1::bytea[], $2::bigint[]) AS used (hash, at)
		WHERE tokens.hash = used.hash AND coalesce(last_used, 0) < used.at`
	pruneTokens = "DELETE FROM tokens WHERE (revoked < $1 OR expires < $1) AND ($2 = '' OR store = $2)"
)

func (s *Storage) AddToken(_ context.Context, t token.Token) error {
	return s.change(false, token.ErrNameTaken, addToken, tokenArgs(t)...)
}

func tokenArgs(t token.Token) []any {
	r := t.Row()
	return []any{r.Name, r.Hash, r.Store, r.Scopes, r.Tail, r.Created, r.Expires, r.Rate, r.Burst, r.LastUsed}
}

func (s *Storage) RevokeToken(_ context.Context, name string, at time.Time) error {
	return s.change(true, token.ErrUnknown, revokeToken, at.UnixMilli(), name)
}

func (s *Storage) ChangeToken(_ context.Context, before, after token.Token, add *token.Token) error {
	was, to, sql := before.Row(), after.Row(), changeToken
	args := []any{
		to.Name, to.Scopes, to.Expires, to.Rate, to.Burst,
		was.Hash, was.Name, was.Scopes, was.Expires, was.Rate, was.Burst,
	}
	if add != nil {
		sql, args = rotateToken, append(args, tokenArgs(*add)...)
	}
	err := s.change(false, token.ErrChanged, sql, args...)
	if hasCode(err, uniqueViolation) {
		err = token.ErrNameTaken
	}
	return err
}

func (s *Storage) RecordUses(_ context.Context, uses []token.Use) error {
	hashes, times := make([][]byte, len(uses)), make([]int64, len(uses))
	for i, use := range uses {
		hashes[i], times[i] = use.Hash[:], use.At.UnixMilli()
	}
	return s.change(true, nil, recordUses, hashes, times)
}

func (s *Storage) PruneTokens(_ context.Context, store string, before time.Time) (removed int, err error) {
	rows, err := s.execute(false, pruneTokens, before.UnixMilli(), store)
	return int(rows), err
}

func (s *Storage) TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error) {
	return storage.ByHash(collect(ctx, s, s.tokenSlots, scanToken, tokenByHash, hash[:]))
}

func (s *Storage) Tokens(ctx context.Context) ([]token.Token, error) {
	return collect(ctx, s, s.otherSlots, scanToken, allTokens)
}

func scanToken(row pgx.CollectableRow) (token.Token, error) {
	var r token.Row
	err := row.Scan(&r.Name, &r.Hash, &r.Store, &r.Scopes, &r.Tail, &r.Created, &r.Expires, &r.Rate, &r.Burst,
		&r.LastUsed, &r.Revoked)
	if err != nil {
		return token.Token{}, err
	}
	return r.Token()
}
