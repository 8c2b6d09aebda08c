package tables

import (
	"context"
	"fmt"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// TokenColumns are the columns of an insert of a token.
const TokenColumns = "name, hash, store, scopes, tail, created, expires, rate, burst, last_used"

const (
	addToken = "INSERT INTO tokens (" + TokenColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`
	selectTokens = "SELECT " + TokenColumns + ", revoked FROM tokens"
	tokenByHash  = selectTokens + " WHERE hash = $1"
	allTokens    = selectTokens + " ORDER BY created, name"
	revokeToken  = "UPDATE tokens SET revoked = coalesce(revoked, $1) WHERE name = $2"
	changeToken  = `
		UPDATE tokens SET name = $1, scopes = $2, expires = $3, rate = $4, burst = $5
		WHERE hash = $6 AND name = $7 AND scopes = $8 AND expires IS NOT DISTINCT FROM $9
			AND rate IS NOT DISTINCT FROM $10 AND burst IS NOT DISTINCT FROM $11 AND revoked IS NULL`
	pruneTokens = "DELETE FROM tokens WHERE (revoked < $1 OR expires < $1) AND ($2 = '' OR store = $2)"
)

// AddToken returns the statement of storage.Tokens.AddToken. It changes no row if the name exists.
func AddToken(t token.Token) Statement {
	return Statement{addToken, []any{t.Name, t.Hash[:], t.Store, t.Scopes.String(), t.Tail, t.Created.UnixMilli(),
		millis(t.Expires), orNull(t.Rate.String()), orNull(t.Rate.Burst), millis(t.LastUsed)}}
}

// ChangeToken returns the statement that gives a token other values. It changes no row if the token differs from
// before.
func ChangeToken(before, after token.Token) Statement {
	return Statement{changeToken, []any{
		after.Name, after.Scopes.String(), millis(after.Expires), orNull(after.Rate.String()), orNull(after.Rate.Burst),
		before.Hash[:], before.Name, before.Scopes.String(), millis(before.Expires), orNull(before.Rate.String()),
		orNull(before.Rate.Burst),
	}}
}

func tokenOf(row *row) token.Token {
	t := token.Token{
		Name: row.text(0), Hash: row.hash(1), Store: row.text(2), Scopes: token.StoredScopes(row.text(3)), Tail: row.text(4),
		Created: row.time(5), Expires: row.time(6), LastUsed: row.time(9), Revoked: row.time(10),
	}
	var err error
	if t.Rate, err = rate.Parse(row.text(7), row.number(8)); err != nil {
		row.err = fmt.Errorf("%w: the stored rate of token %s: %w", storage.ErrDamaged, t.Name, err)
	}
	return t
}

func (t Tables) AddToken(_ context.Context, add token.Token) error {
	s := AddToken(add)
	return t.change(false, token.ErrNameTaken, s.SQL, s.Args...)
}

func (t Tables) RevokeToken(_ context.Context, name string, at time.Time) error {
	return t.change(true, token.ErrUnknown, revokeToken, at.UnixMilli(), name)
}

func (t Tables) PruneTokens(_ context.Context, store string, before time.Time) (removed int, err error) {
	n, err := t.db.Write(false, Statement{pruneTokens, []any{before.UnixMilli(), store}})
	return int(n), err
}

func (t Tables) TokenByHash(ctx context.Context, hash token.Hash) (token.Token, error) {
	return readOne(ctx, t, Lookup, token.ErrUnknown, tokenOf, tokenByHash, hash[:])
}

func (t Tables) Tokens(ctx context.Context) ([]token.Token, error) {
	return read(ctx, t, Ordinary, tokenOf, allTokens)
}
