package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/rate"
	"plantstore/internal/store"
	"plantstore/internal/token"
)

func tokenIssue(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "token issue", "--name NAME [flags]",
		"Issues a token and prints it to standard output. It cannot be shown again.")
	db := f.database()
	name := f.String("name", "", "`name` of the token, for token list and token revoke")
	storeName := f.String("store", token.DefaultStore, "the one `store` that the token gives access to")
	scopes := f.String("scopes", "plants:create,plants:read,plants:write", "`scopes` of the token, separated by commas")
	limit, burst := f.rate("rate", "burst", "of the token", "--default-rate of serve")
	expires := f.String("expires", "", "`lifetime`, such as 90d or 12h (default: no expiry)")
	if _, err := f.parse(args); err != nil {
		return err
	}
	granted, err := token.ParseScopes(*scopes)
	allowed, rateErr := rate.Parse(*limit, *burst)
	err = errors.Join(token.CheckName("token", *name), token.CheckName("store", *storeName), err, rateErr)
	now, end := time.Now(), time.Time{}
	if *expires != "" && err == nil {
		var lifetime time.Duration
		lifetime, err = parseLifetime(*expires)
		end = now.Add(lifetime)
	}
	if err != nil {
		return f.usageError("%v", err)
	}
	t, credential := token.New(*name, *storeName, granted, now, end)
	t.Rate = allowed
	err = env.withStore(ctx, *db, func(st store.Store) error { return st.AddToken(ctx, t) })
	if errors.Is(err, token.ErrNameTaken) {
		return fmt.Errorf("%w: %q; choose another name, even if that token is revoked", err, *name)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(env.stdout, credential)
	return err
}

func tokenList(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "token list", "[flags]", "Lists the tokens, oldest first, without their secrets.")
	db := f.database()
	asJSON := f.Bool("json", false, "print a JSON array")
	if _, err := f.parse(args); err != nil {
		return err
	}
	if err := mustExist(*db); err != nil {
		return err
	}
	var all []token.Token
	err := env.withStore(ctx, *db, func(st store.Store) (err error) {
		all, err = st.Tokens(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if *asJSON {
		return printTokensJSON(env, all)
	}
	w := table(env.stdout)
	fmt.Fprintln(w, "NAME\tSTORE\tSCOPES\tRATE\tBURST\tCREATED\tEXPIRES\tREVOKED\tLAST 4")
	for _, t := range all {
		limit, burst := "-", "-"
		if t.Rate != (rate.Limit{}) {
			limit, burst = t.Rate.String(), strconv.FormatInt(t.Rate.Burst, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t…%s\n", t.Name, t.Store, t.Scopes, limit, burst,
			timestamp(t.Created), timestamp(t.Expires), timestamp(t.Revoked), t.Tail)
	}
	return w.Flush()
}

func printTokensJSON(env environment, all []token.Token) error {
	type row struct {
		Name    string    `json:"name"`
		Store   string    `json:"store"`
		Scopes  []string  `json:"scopes"`
		Rate    string    `json:"rate,omitzero"`
		Burst   int64     `json:"burst,omitzero"`
		Created time.Time `json:"created"`
		Expires time.Time `json:"expires,omitzero"`
		Revoked time.Time `json:"revoked,omitzero"`
		Tail    string    `json:"lastFour"`
	}
	rows := make([]row, len(all))
	for i, t := range all {
		rows[i] = row{
			t.Name, t.Store, t.Scopes.Names(), t.Rate.String(), t.Rate.Burst, t.Created, t.Expires, t.Revoked, t.Tail,
		}
	}
	if err := json.MarshalWrite(env.stdout, rows, jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := fmt.Fprintln(env.stdout)
	return err
}

func tokenRevoke(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "token revoke", "[flags] NAME",
		"Revokes a token. Within two seconds every process on this database refuses it.")
	db := f.database()
	rest, err := f.parse(args, "NAME")
	if err != nil {
		return err
	}
	if err := mustExist(*db); err != nil {
		return err
	}
	err = env.withStore(ctx, *db, func(st store.Store) error { return st.RevokeToken(ctx, rest[0], time.Now()) })
	if errors.Is(err, token.ErrUnknown) {
		return fmt.Errorf("%w: %q; see plantstore token list", err, rest[0])
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
