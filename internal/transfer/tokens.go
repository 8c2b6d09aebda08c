package transfer

import (
	"context"
	"fmt"

	"plantstore/internal/token"
)

// checkTokens returns an error if the tokens of the source can't be copied.
func (c *copier) checkTokens(ctx context.Context) error {
	_, _, err := c.planTokens(ctx)
	return err
}

func (c *copier) copyTokens(ctx context.Context) error {
	c.opts.Progress.start("copying tokens", 0)
	add, revoke, err := c.planTokens(ctx)
	if err != nil {
		return err
	}
	for _, t := range add {
		if err := c.target.AddToken(ctx, t); err != nil {
			return fmt.Errorf("copy token %s: %w; run the same command again to continue", t.Name, err)
		}
	}
	for _, t := range revoke {
		if err := c.target.RevokeToken(ctx, t.Name, t.Revoked); err != nil {
			return fmt.Errorf("revoke token %s: %w; run the same command again to continue", t.Name, err)
		}
	}
	return nil
}

func (c *copier) verifyTokens(ctx context.Context) error {
	add, revoke, err := c.planTokens(ctx)
	switch {
	case err != nil:
		return err
	case len(add) > 0:
		return fmt.Errorf("token %s is missing in the target; run plantstore copy again", add[0].Name)
	case len(revoke) > 0:
		return fmt.Errorf("token %s is not revoked in the target; run plantstore copy again", revoke[0].Name)
	}
	return nil
}

// planTokens returns the tokens that the target lacks, and those that must be revoked there, or an error if a token of
// the target conflicts with one of the source.
func (c *copier) planTokens(ctx context.Context) (add, revoke []token.Token, err error) {
	source, err := c.from.Tokens(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the tokens of the source: %w", err)
	}
	target, err := c.to.Tokens(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the tokens of the target: %w", err)
	}
	byName, byHash := map[string]token.Token{}, map[token.Hash]token.Token{}
	for _, t := range target {
		byName[t.Name], byHash[t.Hash] = t, t
	}
	for _, s := range source {
		t, exists := byName[s.Name]
		if other, ok := byHash[s.Hash]; ok && other.Name != s.Name {
			return nil, nil, fmt.Errorf("token %s of the source is named %s in the target; copy to an empty database",
				s.Name, other.Name)
		}
		if exists && t.Hash != s.Hash {
			return nil, nil, fmt.Errorf("token %s of the target is not the token of that name in the source, "+
				"which would stop working; copy to an empty database", s.Name)
		}
		if exists && !equalBesides(s, t) {
			return nil, nil, fmt.Errorf("token %s has another store, scopes, expiry or rate in the target; "+
				"copy to an empty database", s.Name)
		}
		if exists && s.Revoked.IsZero() && !t.Revoked.IsZero() {
			return nil, nil, fmt.Errorf("token %s is revoked in the target and not in the source; "+
				"revoke it in the source too, or copy to an empty database", s.Name)
		}
		if !exists {
			add = append(add, s)
		}
		if !s.Revoked.IsZero() && t.Revoked.IsZero() {
			revoke = append(revoke, s)
		}
	}
	c.report.Tokens = len(source)
	return add, revoke, nil
}

// equalBesides compares tokens without what changes while they are used or when they are revoked.
func equalBesides(a, b token.Token) bool {
	a.Revoked, a.LastUsed = b.Revoked, b.LastUsed
	return a == b
}
