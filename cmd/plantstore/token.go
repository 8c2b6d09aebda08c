package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

func tokenCommands(env environment) *cobra.Command {
	return group("token", `
Issue, list, change, rotate, revoke, prune and show tokens. All but show work directly on the
database.`, `
  plantstore token issue --name laptop
  plantstore token list`,
		tokenIssueCommand(env), tokenListCommand(env), tokenShowCommand(env), tokenUpdateCommand(env),
		tokenRotateCommand(env), tokenRevokeCommand(env), tokenPruneCommand(env))
}

func tokenIssueCommand(env environment) *cobra.Command {
	f := env.command("issue --name NAME", `
Issue a token and print it. It cannot be shown again.`, `
  plantstore token issue --name laptop
  plantstore token issue --name ci --store staging --scopes plants:read --expires 90d --rate 10/s`)
	db, asJSON := f.database(), f.json()
	name := f.String("name", "", "`name` of the token, for token list and token revoke")
	storeName := f.String("store", token.DefaultStore, "the one `store` that the token gives access to")
	scopes := f.String("scopes", strings.Join(token.PlantScopes.Names(), ","), "its `scopes`, separated by commas")
	limit, burst := f.rate("rate", "burst", "of the token", "--default-rate of serve")
	expires := f.String("expires", "", "`lifetime`, such as 90d or 12h (default: no expiry)")
	return f.runs(func(ctx context.Context) error {
		if *name == "" {
			return usagef("--name is required")
		}
		granted, err := token.ParseScopes(*scopes)
		allowed, rateErr := rate.Parse(*limit, *burst)
		err = errors.Join(token.CheckName("token", *name), token.CheckName("store", *storeName), err, rateErr)
		now := time.Now()
		end, expiresErr := expiry(cmp.Or(*expires, "never"), now)
		if err = cmp.Or(err, expiresErr); err != nil {
			return usageError{err}
		}
		t, credential := token.New(*name, *storeName, granted, now, end)
		t.Rate = allowed
		err = env.withStorage(ctx, *db, creates, func(st storage.Storage) error { return st.AddToken(ctx, t) })
		if errors.Is(err, token.ErrNameTaken) {
			return fmt.Errorf("%w: %q; choose another name, or see plantstore token prune", err, *name)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return env.printJSON(struct {
				client.Token
				Credential string `json:"token"`
			}{forClient(t), credential})
		}
		_, err = fmt.Fprintln(env.stdout, credential)
		return err
	})
}

// expiry returns the end of a lifetime that starts now, or the zero time for "never".
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "never" {
		return time.Time{}, nil
	}
	lifetime, err := parseLifetime("expires", text, 1)
	return now.Add(lifetime), err
}

func tokenListCommand(env environment) *cobra.Command {
	f := env.command("list", `
List tokens, oldest first, without their secrets. LAST USED is written about once a minute.`, `
  plantstore token list
  plantstore token list --expiring 30d
  plantstore token list --db /var/lib/plantstore/plants.db --json`)
	db, asJSON := f.database(), f.json()
	expiring := f.String("expiring", "", "only valid tokens that expire within this `time`, such as 30d")
	return f.runs(func(ctx context.Context) error {
		var all []token.Token
		err := env.withStorage(ctx, *db, reads, func(st storage.Storage) (err error) {
			all, err = st.Tokens(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if *expiring != "" {
			within, err := parseLifetime("expiring", *expiring, 1)
			if err != nil {
				return usageError{err}
			}
			now := time.Now()
			all = slices.DeleteFunc(all, func(t token.Token) bool { return !t.ExpiresWithin(within, now) })
		}
		rows := []tokenRow{}
		for _, t := range all {
			rows = append(rows, tokenRow{forClient(t), t.Created, t.LastUsed, t.Revoked, t.Tail})
		}
		const header = "NAME\tSTORE\tSCOPES\tRATE\tCREATED\tLAST USED\tEXPIRES\tREVOKED\tLAST 4"
		return printTable(env, *asJSON, rows, nil, header, tokenRow.cells, rows...)
	})
}

// tokenRow is a line of token list.
type tokenRow struct {
	client.Token
	Created  time.Time `json:"created"`
	LastUsed time.Time `json:"lastUsed,omitzero"`
	Revoked  time.Time `json:"revoked,omitzero"`
	Tail     string    `json:"lastFour"`
}

func (t tokenRow) cells() string {
	used := strings.TrimSuffix(timestamp(t.LastUsed), ":00") // it has no seconds
	return strings.Join([]string{t.Name, t.Store, strings.Join(t.Scopes, " "), rateText(t.Rate, t.Burst),
		t.Created.UTC().Format(time.DateOnly), used, timestamp(t.Expires), timestamp(t.Revoked), "…" + t.Tail}, "\t")
}

func rateText(limit string, burst int64) string {
	if limit == "" {
		return "-"
	}
	return fmt.Sprintf("%s, burst %d", limit, burst)
}

func forClient(t token.Token) client.Token {
	return client.Token{
		Name: t.Name, Store: t.Store, Scopes: t.Scopes.Names(), Expires: t.Expires,
		Rate: t.Rate.String(), Burst: t.Rate.Burst,
	}
}

func tokenShowCommand(env environment) *cobra.Command {
	s := env.command("show", `
Show what the token of a client allows. The service returns its name, store, scopes, expiry and
rate. Set the service with --url, and the token with PLANTSTORE_TOKEN or --token-file.`, `
  plantstore token show
  plantstore token show --url https://plants.example --json`).service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		t, err := c.Token(ctx)
		line := func(parts [2]string) string { return parts[0] + "\t" + cell(parts[1]) }
		return printTable(env, *s.json, t, err, "", line, [][2]string{
			{"name", t.Name}, {"store", t.Store}, {"scopes", strings.Join(t.Scopes, " ")},
			{"expires", timestamp(t.Expires)}, {"rate", rateText(t.Rate, t.Burst)},
		}...)
	})
}

func tokenRevokeCommand(env environment) *cobra.Command {
	f := env.command("revoke NAME", `
Revoke a token. Within two seconds every process on this database refuses it. If it has replaced
another token (see token rotate), that one stays valid until its overlap ends, and its name is
printed.`, `
  plantstore token revoke laptop`)
	db, name := f.database(), f.takesText("NAME")
	return f.runs(func(ctx context.Context) error {
		var all []token.Token
		err := env.withStorage(ctx, *db, writes, func(st storage.Storage) error {
			err := st.RevokeToken(ctx, *name, time.Now())
			all, _ = st.Tokens(ctx) // for the hint below
			return err
		})
		if errors.Is(err, token.ErrUnknown) {
			return errUnknownToken(*name)
		}
		for _, t := range all {
			if t.Name == rotatedName(*name, t.Tail) && t.Revoked.IsZero() && t.Expires.After(time.Now()) {
				fmt.Fprintf(env.stderr, "%s, which token rotate has replaced, is still valid until %s UTC.\n", t.Name,
					timestamp(t.Expires))
			}
		}
		return err
	})
}

func tokenPruneCommand(env environment) *cobra.Command {
	f := env.command("prune --before TIME", `
Remove tokens that were revoked or expired before a time. Their names can be used again.`, `
  plantstore token prune --before 2026-01-01
  plantstore token prune --before 30d`)
	db := f.database()
	before := f.String("before", "", "`time`: a past date such as 2026-01-01 in UTC, a time such\n"+
		"as 2026-01-01T12:00:00Z, or an age such as 30d")
	return f.runs(func(ctx context.Context) error {
		at, err := parsePast("before", *before, time.Now())
		if err != nil {
			return err
		}
		var n int
		err = env.withStorage(ctx, *db, writes, func(st storage.Storage) (err error) {
			n, err = st.PruneTokens(ctx, "", at)
			return err
		})
		if err == nil {
			_, err = fmt.Fprintln(env.stdout, "tokens removed:", n)
		}
		return err
	})
}

// timestamp formats t for a table; a zero time is "-".
func timestamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}
