package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/storage"
	"plantstore/internal/token"
	"plantstore/internal/webhook"
)

var errUnknownStore = errors.New("no such store")

// store is a line of store list.
type store struct {
	Name     string    `json:"name"`
	Plants   int64     `json:"plants"`
	Tokens   int       `json:"tokens"` // valid ones
	LastUsed time.Time `json:"lastUsed,omitzero"`
}

func storeCommands(env environment) *cobra.Command {
	return group("store", `
List, clear and remove stores. The commands work directly on the database, also while the service
runs.`, `
  plantstore store list
  plantstore store clear playground`,
		storeListCommand(env), storeClearCommand(env), storeRemoveCommand(env))
}

func storeListCommand(env environment) *cobra.Command {
	f := env.command("list", `
List stores. TOKENS are the valid ones, and LAST USED is the last use of any token.`, `
  plantstore store list`)
	db, asJSON := f.database(), f.json()
	return f.runs(func(ctx context.Context) error {
		var all []store
		err := env.withStorage(ctx, *db, copies, func(st storage.Storage) (err error) {
			if all, err = stores(ctx, st, ""); err != nil {
				return err
			}
			sandboxes, err := st.Sandboxes(ctx)
			if len(sandboxes) > 0 {
				fmt.Fprintln(env.stderr, "sandboxes, which are not listed:", len(sandboxes))
			}
			return err
		})
		return printTable(env, *asJSON, all, err, "NAME\tPLANTS\tTOKENS\tLAST USED", func(s store) string {
			return fmt.Sprintf("%s\t%d\t%d\t%s", cell(s.Name), s.Plants, s.Tokens,
				strings.TrimSuffix(timestamp(s.LastUsed), ":00"))
		}, all...)
	})
}

// stores returns all stores except sandboxes, or only one of them. The default store always exists.
func stores(ctx context.Context, st storage.Storage, only string) (all []store, err error) {
	names, err := st.Stores(ctx)
	tokens, tokensErr := st.Tokens(ctx)
	if err := cmp.Or(err, tokensErr); err != nil {
		return nil, err
	}
	names = append(names, token.DefaultStore)
	for _, t := range tokens {
		names = append(names, t.Store)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if token.IsSandbox(name) || only != "" && name != only {
			continue
		}
		s := store{Name: name}
		if s.Plants, err = st.Count(ctx, name); err != nil {
			return nil, err
		}
		for _, t := range tokens {
			if t.Store == name && t.Valid(time.Now()) {
				s.Tokens++
			}
			if t.Store == name && t.LastUsed.After(s.LastUsed) {
				s.LastUsed = t.LastUsed
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func storeClearCommand(env environment) *cobra.Command {
	return env.command("clear NAME", `
Remove all plants of a store. They are removed in steps, so that a running service hardly waits. The
tokens of the store stay valid.`, `
  plantstore store clear playground`).onStore(env.clearStore)
}

func storeRemoveCommand(env environment) *cobra.Command {
	f := env.command("remove NAME", `
Remove a store. Its tokens are revoked, and two seconds later, when every process refuses them, its
plants, tokens and webhook endpoints are removed. Tokens of an identity provider stay valid.`, `
  plantstore store remove staging --yes`)
	yes := f.Bool("yes", false, "remove a store that has plants or valid tokens")
	return f.onStore(func(ctx context.Context, st storage.Storage, s store) error {
		switch {
		case s.Name == token.DefaultStore:
			return usagef("store %s can't be removed; use plantstore store clear", s.Name)
		case !*yes && (s.Plants > 0 || s.Tokens > 0):
			return usagef("store %s is in use (plants: %d, valid tokens: %d); use --yes to remove it", s.Name, s.Plants,
				s.Tokens)
		}
		all, err := st.Tokens(ctx)
		now, wait := time.Now(), time.Duration(0)
		for _, t := range all {
			if err == nil && t.Store == s.Name {
				err = st.RevokeToken(ctx, t.Name, now)
				if t.Valid(now) {
					t.Revoked = now
				}
				wait = max(wait, 2*time.Second-time.Since(t.Revoked))
			}
		}
		if err == nil {
			err = webhook.RemoveAll(ctx, st, s.Name)
		}
		if err == nil {
			time.Sleep(wait) // until every process refuses the tokens
			err = env.clearStore(ctx, st, s)
		}
		if err != nil {
			return err
		}
		n, err := st.PruneTokens(ctx, s.Name, time.Now())
		if err == nil {
			_, err = fmt.Fprintln(env.stdout, "tokens removed:", n)
		}
		return err
	})
}

// onStore returns the command, which calls do with the store that its argument names.
func (f *flags) onStore(do func(context.Context, storage.Storage, store) error) *cobra.Command {
	db, name := f.database(), f.takesText("NAME")
	return f.runs(func(ctx context.Context) error {
		switch {
		case *name == "": // such as that of an unset variable in a script
			return usagef("NAME is empty; see plantstore store list")
		case token.IsSandbox(*name):
			return usagef("%s is a sandbox, which the service removes when it expires", *name)
		}
		return f.env.withStorage(ctx, *db, writes, func(st storage.Storage) error {
			found, err := stores(ctx, st, *name)
			switch {
			case err != nil:
				return err
			case len(found) == 0:
				return fmt.Errorf("%w: %q; see plantstore store list", errUnknownStore, *name)
			}
			return do(ctx, st, found[0])
		})
	})
}

func (env environment) clearStore(ctx context.Context, st storage.Storage, s store) error {
	var done atomic.Int64
	defer env.showProgress("plants removed", &done)()
	if err := storage.Clear(ctx, st, s.Name, 1, &done); err != nil {
		return fmt.Errorf("%w; run the same command again to continue", err)
	}
	_, err := fmt.Fprintln(env.stdout, "plants removed:", done.Load())
	return err
}
