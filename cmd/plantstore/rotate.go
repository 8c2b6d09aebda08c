package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

func tokenUpdateCommand(env environment) *cobra.Command {
	f := env.command("update NAME", `
Change the scopes, the rate or the expiry of a token. Within two seconds every process on this
database applies it. The secret stays the same.`, `
  plantstore token update ci --scopes plants:read --rate 10/s
  plantstore token update ci --expires 90d --rate none`)
	db, name := f.database(), f.takesText("NAME")
	scopes := optional(f, "scopes", "new `scopes`, separated by commas", verbatim)
	f.values("scopes", token.AllScopes.Names()...)
	limit := optional(f, "rate",
		"new request `rate`, such as 100/s, 30/m or 1000/h,\nor none for --default-rate of serve", verbatim)
	burst := optional(f, "burst", "new number of `requests` allowed at once after a pause;\n0, and a new rate without "+
		"--burst, for as many as the\nrate allows in a second",
		func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
	expires := optional(f, "expires", "new `lifetime` from now on, such as 90d or 12h, or never", verbatim)
	return f.runs(func(ctx context.Context) error {
		if *scopes == nil && *expires == nil && *limit == nil && *burst == nil {
			return usagef("nothing to change: use --scopes, --rate, --burst or --expires")
		}
		return env.changeToken(ctx, *db, *name, func(t *token.Token) (_ *token.Token, err error) {
			if *scopes != nil {
				t.Scopes, err = token.ParseScopes(**scopes)
			}
			if *expires != nil && err == nil {
				t.Expires, err = expiry(**expires, time.Now())
			}
			if (*limit != nil || *burst != nil) && err == nil {
				t.Rate, err = changedRate(t.Rate, *limit, *burst)
			}
			if err != nil {
				err = usageError{err}
			}
			return nil, err
		})
	})
}

// changedRate returns the rate of a token after an update, in which nil is unchanged.
func changedRate(was rate.Limit, limit *string, burst *int64) (rate.Limit, error) {
	text, requests := was.String(), int64(0)
	if limit != nil {
		text = *limit
	}
	if text == "none" {
		text = ""
	}
	if burst != nil {
		requests = *burst
	}
	return rate.Parse(text, requests)
}

func tokenRotateCommand(env environment) *cobra.Command {
	f := env.command("rotate NAME", `
Replace a token with a new one, and print it. The new token has the name, store, scopes and rate of
the old one, and its expiry unless --expires is set. --expires is required if the old one expires
before the overlap ends. The old one stays valid for the time of --overlap, but not longer than
before. Its last four characters are added to its name, such as ci.x7Qa: token list shows when it
was last used.`, `
  plantstore token rotate ci
  plantstore token rotate ci --overlap 7d --expires 90d
  plantstore token rotate ci --overlap 0s`)
	db, name := f.database(), f.takesText("NAME")
	overlap := f.String("overlap", "24h", "`time` for which the old token stays valid, such as 7d;\n0s ends it at once")
	expires := f.String("expires", "",
		"`lifetime` of the new token, such as 90d, or never\n(default: expires when the old one would have)")
	return f.runs(func(ctx context.Context) (err error) {
		var kept time.Duration
		if *overlap != "0" && *overlap != "0s" {
			if kept, err = parseLifetime("overlap", *overlap); err != nil {
				return usageError{err}
			}
		}
		var credential, ends string
		err = env.changeToken(ctx, *db, *name, func(t *token.Token) (next *token.Token, err error) {
			next, credential, err = successor(t, kept, *expires)
			ends = fmt.Sprintf("The old token is now named %s and expires at %s UTC.", t.Name, timestamp(t.Expires))
			if err == nil && !next.Expires.IsZero() {
				ends += fmt.Sprintf(" The new one expires at %s UTC.", timestamp(next.Expires))
			}
			return next, err
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(env.stderr, ends)
		return env.printCredential("rotated", *name, credential)
	})
}

// successor returns the token that replaces t and its credential. It changes t to what is stored of the old one.
func successor(t *token.Token, overlap time.Duration, expires string) (*token.Token, string, error) {
	now := time.Now()
	next, credential := token.New(t.Name, t.Store, t.Scopes, now, t.Expires)
	next.Rate = t.Rate
	if expires != "" {
		var err error
		if next.Expires, err = expiry(expires, now); err != nil {
			return nil, "", usageError{err}
		}
	} else if !t.Expires.IsZero() && !t.Expires.After(now.Add(overlap)) {
		return nil, "", usagef("token %q expires at %s UTC, before the overlap ends: use --expires for the lifetime of "+
			"the new token", t.Name, timestamp(t.Expires))
	}
	t.Name = rotatedName(t.Name, t.Tail)
	if end := now.Add(overlap); t.Expires.IsZero() || end.Before(t.Expires) {
		t.Expires = end
	}
	return &next, credential, nil
}

// rotatedName returns the name of a token after a new one has got its name.
func rotatedName(name, tail string) string { return fmt.Sprintf("%.59s.%s", name, tail) }

// printCredential prints a new credential, which is lost if that fails.
func (env environment) printCredential(done, name, credential string) error {
	if _, err := fmt.Fprintln(env.stdout, credential); err != nil {
		return fmt.Errorf("token %q was %s, but the new token could not be printed; "+
			"run plantstore token rotate %s --overlap 0s: %w", name, done, name, err)
	}
	return nil
}

// changeToken changes the token of that name in a database, and adds the token that change returns, if any.
func (env environment) changeToken(
	ctx context.Context, db, name string, change func(*token.Token) (*token.Token, error),
) error {
	return env.withStorage(ctx, db, writes, func(st storage.Storage) error {
		all, err := st.Tokens(ctx)
		if err != nil {
			return err
		}
		for _, was := range all {
			if was.Name != name {
				continue
			}
			if !was.Revoked.IsZero() {
				return fmt.Errorf("token %q is revoked; use plantstore token issue with another name", name)
			}
			to := was
			add, err := change(&to)
			if err != nil {
				return err
			}
			switch err := st.ChangeToken(ctx, was, to, add); {
			case errors.Is(err, token.ErrChanged):
				return fmt.Errorf("%w meanwhile: %q; run the command again", err, name)
			case errors.Is(err, token.ErrNameTaken):
				return fmt.Errorf("%w: %q; run plantstore token issue with a new name instead", err, to.Name)
			default:
				return err
			}
		}
		return errUnknownToken(name)
	})
}

func errUnknownToken(name string) error {
	return fmt.Errorf("%w: %q; see plantstore token list", token.ErrUnknown, name)
}
