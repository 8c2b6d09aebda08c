package dbcopy

import (
	"context"
	"fmt"
	"time"

	"plantstore/internal/token"
)

// copyTokens checks that each token of the target is the token of that name in the source. With write, it adds the
// tokens that the target lacks, and revokes those that the source has revoked. It returns how many the source has.
func (c *copier) copyTokens(ctx context.Context, write bool) (n int, err error) {
	source, err := c.from.Tokens(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the tokens of the source: %w", err)
	}
	target, err := c.to.Tokens(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the tokens of the target: %w", err)
	}
	there := map[string]token.Token{}
	for _, t := range target {
		there[t.Name] = t
	}
	for _, s := range source {
		t, exists := there[s.Name]
		delete(there, s.Name)
		isRevoked := !t.Revoked.IsZero()
		t.LastUsed, t.Revoked = s.LastUsed, s.Revoked
		if exists && (t != s || isRevoked && s.Revoked.IsZero()) {
			return 0, fmt.Errorf("token %s of the target is not the token of that name in the source; "+
				"copy to an empty database", s.Name)
		}
		if write && !exists {
			err = c.to.AddToken(ctx, s)
		}
		if write && err == nil && !s.Revoked.IsZero() && !isRevoked {
			err = c.to.RevokeToken(ctx, s.Name, s.Revoked)
		}
		if err != nil {
			return 0, fmt.Errorf("copy token %s: %w; run the same command again to continue", s.Name, err)
		}
	}
	for _, t := range there {
		if t.Valid(time.Now()) { // the source may have revoked and removed it since an earlier copy
			return 0, fmt.Errorf("token %s of the target is valid, and the source does not have it; revoke it, or "+
				"copy to an empty database", t.Name)
		}
	}
	return len(source), nil
}
