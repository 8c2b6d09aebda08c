package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	scopes := f.String("scopes", "", "new `scopes`, separated by commas")
	limit := f.String("rate", "",
		"new request `rate`, such as 100/s, 30/m or 1000/h,\nor none for --default-rate of serve")
	burst := f.Int64("burst", 0, "new number of `requests` allowed at once after a pause;\n0, and a new rate without "+
		"--burst, for as many as the\nrate allows in a second")
	expires := f.String("expires", "", "new `lifetime` from now on, such as 90d or 12h, or never")
	return f.runs(func(ctx context.Context) error {
		if !slices.ContainsFunc([]string{"scopes", "rate", "burst", "expires"}, f.Changed) {
			return usagef("nothing to change: use --scopes, --rate, --burst or --expires")
		}
		return env.changeToken(ctx, *db, *name, func(t *token.Token) (*token.Token, error) {
			var errs [3]error
			if f.Changed("scopes") {
				t.Scopes, errs[0] = token.ParseScopes(*scopes)
			}
			if f.Changed("expires") {
				t.Expires, errs[1] = expiry(*expires, time.Now())
			}
			if f.Changed("rate") || f.Changed("burst") {
				switch {
				case !f.Changed("rate"):
					*limit = t.Rate.String()
				case *limit == "none":
					*limit = ""
				}
				t.Rate, errs[2] = rate.Parse(*limit, *burst)
			}
			if err := errors.Join(errs[:]...); err != nil {
				return nil, usageError{err}
			}
			return nil, nil
		})
	})
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
	return f.runs(func(ctx context.Context) error {
		kept, err := parseLifetime("overlap", *overlap, 0)
		if err != nil {
			return usageError{err}
		}
		var credential, ends string
		err = env.changeToken(ctx, *db, *name, func(t *token.Token) (next *token.Token, err error) {
			next, credential, err = successor(t, kept, *expires)
			ends = fmt.Sprintf("The old token is now named %s and expires at %s UTC.", t.Name, timestamp(t.Expires))
			return next, err
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(env.stderr, ends)
		_, err = fmt.Fprintln(env.stdout, credential)
		return err
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
