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
	"plantstore/internal/store"
	"plantstore/internal/token"
)

func tokenCommands(env environment) *cobra.Command {
	return group("token", `
Issue, list, change, rotate, revoke and show tokens. All but show work directly on the database.`, `
  plantstore token issue --name laptop
  plantstore token list`,
		tokenIssueCommand(env), tokenListCommand(env), tokenShowCommand(env), tokenUpdateCommand(env),
		tokenRotateCommand(env), tokenRevokeCommand(env))
}

func tokenIssueCommand(env environment) *cobra.Command {
	return command(env, tokenIssue, "issue --name NAME", `
Issue a token and print it. It cannot be shown again.`, `
  plantstore token issue --name laptop
  plantstore token issue --name ci --store staging --scopes plants:read --expires 90d --rate 10/s`)
}

type issueOptions struct {
	db, name, store, scopes, expires string
	rate                             rateFlags
}

func (o *issueOptions) declare(f *flags) {
	f.database(&o.db)
	f.StringVar(&o.name, "name", "", "`name` of the token, for token list and token revoke")
	f.StringVar(&o.store, "store", token.DefaultStore, "the one `store` that the token gives access to")
	f.cmd.RegisterFlagCompletionFunc("store", f.fromTokens(func(t token.Token) string { return t.Store }))
	f.StringVar(&o.scopes, "scopes", strings.Join(token.AllScopes.Names(), ","),
		"its `scopes`, separated by commas")
	f.cmd.RegisterFlagCompletionFunc("scopes", completeScopes)
	o.rate.declare(f, "rate", "burst", "of the token", "--default-rate of serve")
	f.StringVar(&o.expires, "expires", "", "`lifetime`, such as 90d or 12h (default: no expiry)")
}

func tokenIssue(ctx context.Context, o *issueOptions, env environment) error {
	if o.name == "" {
		return usagef("--name is required")
	}
	granted, err := token.ParseScopes(o.scopes)
	allowed, rateErr := rate.Parse(o.rate.limit, o.rate.burst)
	err = errors.Join(token.CheckName("token", o.name), token.CheckName("store", o.store), err, rateErr)
	now := time.Now()
	end, expiresErr := expiry(cmp.Or(o.expires, "never"), now)
	if err = cmp.Or(err, expiresErr); err != nil {
		return usageError{err}
	}
	t, credential := token.New(o.name, o.store, granted, now, end)
	t.Rate = allowed
	err = env.withStore(ctx, o.db, writes, func(st store.Store) error { return st.AddToken(ctx, t) })
	if errors.Is(err, token.ErrNameTaken) {
		return fmt.Errorf("%w: %q; choose another name; the name of a revoked token can't be used again", err, o.name)
	}
	if err != nil {
		return err
	}
	return env.printCredential("issued", o.name, credential)
}

// expiry returns the end of a lifetime that starts now, or the zero time for "never".
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "never" {
		return time.Time{}, nil
	}
	lifetime, err := parseLifetime("expires", text)
	return now.Add(lifetime), err
}

func tokenListCommand(env environment) *cobra.Command {
	return command(env, tokenList, "list", `
List tokens, oldest first, without their secrets. LAST USED is written about once a minute.
EXPIRES says which tokens have expired, and which will within 14 days.`, `
  plantstore token list
  plantstore token list --expiring 30d
  plantstore token list --db /var/lib/plantstore/plants.db --json`)
}

type tokenListOptions struct {
	databaseOptions
	expiring string
}

func (o *tokenListOptions) declare(f *flags) {
	o.databaseOptions.declare(f)
	f.StringVar(&o.expiring, "expiring", "", "only valid tokens that expire within this `time`, such as 30d")
}

func tokenList(ctx context.Context, o *tokenListOptions, env environment) error {
	now := time.Now()
	if err := mustExist(o.db); err != nil {
		return err
	}
	var all []token.Token
	err := env.withStore(ctx, o.db, reads, func(st store.Store) (err error) {
		all, err = st.Tokens(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if o.expiring != "" {
		within, err := parseLifetime("expiring", o.expiring)
		if err != nil {
			return usageError{err}
		}
		all = slices.DeleteFunc(all, func(t token.Token) bool { return !t.ExpiresWithin(within, now) })
	}
	if o.json {
		return printTokensJSON(env, all)
	}
	w := newTable(env.stdout)
	fmt.Fprintln(w, "NAME\tSTORE\tSCOPES\tRATE\tCREATED\tLAST USED\tEXPIRES\tREVOKED\tLAST 4")
	for _, t := range all {
		limit := "-"
		if t.Rate != (rate.Limit{}) {
			limit = fmt.Sprintf("%s, burst %d", t.Rate, t.Rate.Burst)
		}
		used := strings.TrimSuffix(timestamp(t.LastUsed), ":00") // it has no seconds
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t…%s\n", t.Name, t.Store, t.Scopes, limit,
			t.Created.UTC().Format(time.DateOnly), used, timestamp(t.Expires)+untilExpiry(t, now), timestamp(t.Revoked), t.Tail)
	}
	return w.Flush()
}

// untilExpiry returns what the table adds to the expiry of a token that has expired or will soon.
func untilExpiry(t token.Token, now time.Time) string {
	left := t.Expires.Sub(now)
	switch {
	case t.Expires.IsZero() || !t.Revoked.IsZero():
		return ""
	case left <= 0:
		return " (expired)"
	case !t.ExpiresWithin(token.ExpiresSoon, now):
		return ""
	case left < 2*time.Hour:
		return fmt.Sprintf(" (in %d min)", (left+time.Minute-1)/time.Minute)
	case left < 48*time.Hour:
		return fmt.Sprintf(" (in %d h)", left/time.Hour)
	}
	return fmt.Sprintf(" (in %d days)", left/(24*time.Hour))
}

func printTokensJSON(env environment, all []token.Token) error {
	type row struct {
		Name     string    `json:"name"`
		Store    string    `json:"store"`
		Scopes   []string  `json:"scopes"`
		Rate     string    `json:"rate,omitzero"`
		Burst    int64     `json:"burst,omitzero"`
		Created  time.Time `json:"created"`
		LastUsed time.Time `json:"lastUsed,omitzero"`
		Expires  time.Time `json:"expires,omitzero"`
		Revoked  time.Time `json:"revoked,omitzero"`
		Tail     string    `json:"lastFour"`
	}
	rows := make([]row, len(all))
	for i, t := range all {
		rows[i] = row{
			t.Name, t.Store, t.Scopes.Names(), t.Rate.String(), t.Rate.Burst,
			t.Created, t.LastUsed, t.Expires, t.Revoked, t.Tail,
		}
	}
	return env.printJSON(rows)
}

func tokenShowCommand(env environment) *cobra.Command {
	return clientCommand(env, tokenShow, "show", `
Show what the token of a client allows. The service returns its name, store, scopes, expiry and
rate. Set the service with --url, and the token with PLANTSTORE_TOKEN or --token-file.`, `
  plantstore token show
  plantstore token show --url https://plants.example --token-file token.txt --json`)
}

// tokenShow prints what the service returns about the token of the request.
func tokenShow(ctx context.Context, c *client.Client, o *serviceOptions, env environment) error {
	t, err := c.Token(ctx)
	if err != nil {
		return err
	}
	if o.json {
		return env.printJSON(t)
	}
	limit := "-"
	if t.Rate != "" {
		limit = fmt.Sprintf("%s, burst %d", t.Rate, t.Burst)
	}
	w := newTable(env.stdout)
	fmt.Fprintf(w, "name\t%s\nstore\t%s\nscopes\t%s\nexpires\t%s\nrate\t%s\n", cell(t.Name), cell(t.Store),
		cell(strings.Join(t.Scopes, " ")), timestamp(t.Expires), cell(limit))
	return w.Flush()
}

func tokenRevokeCommand(env environment) *cobra.Command {
	return command(env, tokenRevoke, "revoke NAME", `
Revoke a token. Within two seconds every process on this database refuses it. If it has replaced
another token (see token rotate), that one stays valid until its overlap ends, and its name is
printed.`, `
  plantstore token revoke laptop`)
}

type revokeOptions struct{ db, name string }

func (o *revokeOptions) declare(f *flags) {
	f.database(&o.db)
	f.takes("NAME", func(name string) error { o.name = name; return nil })
	f.cmd.ValidArgsFunction = f.fromTokens(func(t token.Token) string { return t.Name })
}

func tokenRevoke(ctx context.Context, o *revokeOptions, env environment) error {
	if err := mustExist(o.db); err != nil {
		return err
	}
	var all []token.Token
	err := env.withStore(ctx, o.db, writes, func(st store.Store) error {
		err := st.RevokeToken(ctx, o.name, time.Now())
		all, _ = st.Tokens(ctx) // for the hint below
		return err
	})
	if errors.Is(err, token.ErrUnknown) {
		return errUnknownToken(o.name)
	}
	for _, t := range all {
		if t.Name == rotatedName(o.name, t.Tail) && t.Revoked.IsZero() && t.Expires.After(time.Now()) {
			fmt.Fprintf(env.stderr, "%s, which token rotate has replaced, is still valid until %s UTC.\n", t.Name,
				timestamp(t.Expires))
		}
	}
	return err
}

// timestamp formats t for a table; a zero time is "-".
func timestamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateTime)
}

// fromTokens completes with values of the tokens in the existing database of --db. Every failure is silent.
func (f *flags) fromTokens(value func(token.Token) string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) (values []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.readVariables()
		if st, err := openStore(ctx, f.Lookup("db").Value.String(), reads, true); err == nil {
			defer st.Close()
			all, _ := st.Tokens(ctx)
			for _, t := range all {
				if t.Revoked.IsZero() && !slices.Contains(values, value(t)) {
					values = append(values, value(t))
				}
			}
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeScopes completes the last of the scopes that are separated by commas.
func completeScopes(_ *cobra.Command, _ []string, text string) (values []string, _ cobra.ShellCompDirective) {
	given := text[:strings.LastIndexByte(text, ',')+1]
	for _, name := range token.AllScopes.Names() {
		if !strings.Contains(given, name) {
			values = append(values, given+name)
		}
	}
	return values, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
