package dbcopy

import (
	"context"
	"fmt"

	"plantstore/internal/token"
)

// copyTokens adds and revokes tokens in the target, and returns how many the source has.
func (c *copier) copyTokens(ctx context.Context) (n int, err error) {
	add, revoke, err := c.planTokens(ctx)
	if err != nil {
		return 0, err
	}
	for _, t := range add {
		if err := c.to.AddToken(ctx, t); err != nil {
			return 0, fmt.Errorf("copy token %s: %w; run the same command again to continue", t.Name, err)
		}
	}
	for _, t := range revoke {
		if err := c.to.RevokeToken(ctx, t.Name, t.Revoked); err != nil {
			return 0, fmt.Errorf("revoke token %s: %w; run the same command again to continue", t.Name, err)
		}
	}
	tokens, err := c.from.Tokens(ctx)
	return len(tokens), err
}

// planTokens returns the tokens that the target lacks, and those that must be revoked there. It returns an error if a
// token of the target is not the token of that name in the source.
func (c *copier) planTokens(ctx context.Context) (add, revoke []token.Token, err error) {
	source, err := c.from.Tokens(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the tokens of the source: %w", err)
	}
	target, err := c.to.Tokens(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the tokens of the target: %w", err)
	}
	there := map[string]token.Token{}
	for _, t := range target {
		there[t.Name] = t
	}
	for _, s := range source {
		t, exists := there[s.Name]
		isRevoked := !t.Revoked.IsZero()
		t.LastUsed, t.Revoked = s.LastUsed, s.Revoked
		if exists && (t != s || isRevoked && s.Revoked.IsZero()) {
			return nil, nil, fmt.Errorf("token %s of the target is not the token of that name in the source; "+
				"copy to an empty database", s.Name)
		}
		if !exists {
			add = append(add, s)
		}
		if !s.Revoked.IsZero() && !isRevoked {
			revoke = append(revoke, s)
		}
	}
	return add, revoke, nil
}
