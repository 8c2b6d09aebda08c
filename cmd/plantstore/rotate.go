package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/rate"
	"plantstore/internal/store"
	"plantstore/internal/token"
)

func tokenUpdateCommand(env environment) *cobra.Command {
	return command(env, tokenUpdate, "update NAME", `
Change the scopes, the rate or the expiry of a token. Within two seconds every process on this
database applies it. The secret stays the same.`, `
  plantstore token update ci --scopes plants:read --rate 10/s
  plantstore token update ci --expires 90d --rate none`)
}

type updateOptions struct {
	revokeOptions
	scopes, expires, rate *string
	burst                 *int64
}

func (o *updateOptions) declare(f *flags) {
	o.revokeOptions.declare(f)
	optional(f, &o.scopes, "scopes", "new `scopes`, separated by commas", verbatim)
	f.cmd.RegisterFlagCompletionFunc("scopes", completeScopes)
	optional(f, &o.rate, "rate", "new request `rate`, such as 100/s, 30/m or 1000/h,\nor none for --default-rate of serve",
		verbatim)
	optional(f, &o.burst, "burst", "new number of `requests` allowed at once after a pause;\n0, and a new rate without "+
		"--burst, for as many as the\nrate allows in a second",
		func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
	optional(f, &o.expires, "expires", "new `lifetime` from now on, such as 90d or 12h, or never", verbatim)
}

func tokenUpdate(ctx context.Context, o *updateOptions, env environment) error {
	if o.scopes == nil && o.expires == nil && o.rate == nil && o.burst == nil {
		return usagef("nothing to change: use --scopes, --rate, --burst or --expires")
	}
	return env.changeToken(ctx, o.revokeOptions, func(t *token.Token) (_ *token.Token, err error) {
		if o.scopes != nil {
			if t.Scopes, err = token.ParseScopes(*o.scopes); err != nil {
				return nil, usageError{err}
			}
		}
		if o.expires != nil {
			if t.Expires, err = expiry(*o.expires, time.Now()); err != nil {
				return nil, usageError{err}
			}
		}
		if o.rate == nil && o.burst == nil {
			return nil, nil
		}
		limit, burst := t.Rate.String(), int64(0)
		if o.rate != nil {
			limit = *o.rate
		}
		if o.burst != nil {
			burst = *o.burst
		}
		if limit == "none" {
			limit = ""
		}
		if t.Rate, err = rate.Parse(limit, burst); err != nil {
			err = usageError{err}
		}
		return nil, err
	})
}

func tokenRotateCommand(env environment) *cobra.Command {
	return command(env, tokenRotate, "rotate NAME", `
Replace a token with a new one, and print it. The new token has the name, store, scopes and rate of
the old one, and its expiry unless --expires is set. --expires is required if the old one expires
before the overlap ends. The old one stays valid for the time of --overlap, but not longer than
before. Its last four characters are added to its name, such as ci.x7Qa: token list shows when it
was last used.`, `
  plantstore token rotate ci
  plantstore token rotate ci --overlap 7d --expires 90d
  plantstore token rotate ci --overlap 0s`)
}

type rotateOptions struct {
	revokeOptions
	overlap, expires string
}

func (o *rotateOptions) declare(f *flags) {
	o.revokeOptions.declare(f)
	f.StringVar(&o.overlap, "overlap", "24h",
		"`time` for which the old token stays valid, such as 7d;\n0s ends it at once")
	f.StringVar(&o.expires, "expires", "",
		"`lifetime` of the new token, such as 90d, or never\n(default: expires when the old one would have)")
}

func tokenRotate(ctx context.Context, o *rotateOptions, env environment) error {
	var overlap time.Duration
	if o.overlap != "0" && o.overlap != "0s" {
		var err error
		if overlap, err = parseLifetime("overlap", o.overlap); err != nil {
			return usageError{err}
		}
	}
	var credential, ends string
	err := env.changeToken(ctx, o.revokeOptions, func(t *token.Token) (*token.Token, error) {
		now := time.Now()
		next, secret := token.New(t.Name, t.Store, t.Scopes, now, t.Expires)
		next.Rate = t.Rate
		if o.expires != "" {
			var err error
			if next.Expires, err = expiry(o.expires, now); err != nil {
				return nil, usageError{err}
			}
		} else if !t.Expires.IsZero() && !t.Expires.After(now.Add(overlap)) {
			return nil, usagef("token %q expires at %s UTC, before the overlap ends: use --expires for the lifetime of "+
				"the new token", t.Name, timestamp(t.Expires))
		}
		t.Name = rotatedName(t.Name, t.Tail)
		if end := now.Add(overlap); t.Expires.IsZero() || end.Before(t.Expires) {
			t.Expires = end
		}
		credential = secret
		ends = fmt.Sprintf("The old token is now named %s and expires at %s UTC.", t.Name, timestamp(t.Expires))
		if !next.Expires.IsZero() {
			ends += fmt.Sprintf(" The new one expires at %s UTC.", timestamp(next.Expires))
		}
		return &next, nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(env.stderr, ends)
	return env.printCredential("rotated", o.name, credential)
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
	ctx context.Context, o revokeOptions, change func(*token.Token) (*token.Token, error),
) error {
	if err := mustExist(o.db); err != nil {
		return err
	}
	return env.withStore(ctx, o.db, writes, func(st store.Store) error {
		all, err := st.Tokens(ctx)
		if err != nil {
			return err
		}
		for _, was := range all {
			if was.Name != o.name {
				continue
			}
			if !was.Revoked.IsZero() {
				return fmt.Errorf("token %q is revoked; use plantstore token issue with another name", o.name)
			}
			to := was
			add, err := change(&to)
			if err != nil {
				return err
			}
			switch err := st.ChangeToken(ctx, was, to, add); {
			case errors.Is(err, token.ErrChanged):
				return fmt.Errorf("%w meanwhile: %q; run the command again", err, o.name)
			case errors.Is(err, token.ErrNameTaken):
				return fmt.Errorf("%w: %q; run plantstore token issue with a new name instead", err, to.Name)
			default:
				return err
			}
		}
		return errUnknownToken(o.name)
	})
}

func errUnknownToken(name string) error {
	return fmt.Errorf("%w: %q; see plantstore token list", token.ErrUnknown, name)
}
