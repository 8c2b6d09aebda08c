package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
)

// database adds the flag --db, which means the same in every command.
func (f *flags) database(db *string) {
	f.StringVar(db, "db", "plantstore.db", "database: the `path` of a file, or a postgres:// URL")
}

// databaseOptions are those of a command that prints something of a database.
type databaseOptions struct {
	db   string
	json bool
}

func (o *databaseOptions) declare(f *flags) {
	f.database(&o.db)
	f.BoolVar(&o.json, "json", false, "print JSON, and errors as JSON")
}

func isURL(db string) bool { return strings.Contains(db, "://") }

// openStore opens the engine that the value of --db selects.
func openStore(ctx context.Context, db string, unsafeDurability bool) (store.Store, error) {
	switch {
	case db == "":
		return nil, errors.New("--db is empty: use the path of a file or a postgres:// URL")
	case postgres.IsURL(db):
		return postgres.Open(ctx, db, postgres.Options{UnsafeDurability: unsafeDurability})
	case isURL(db):
		scheme, _, _ := strings.Cut(db, "://")
		return nil, fmt.Errorf("--db has the scheme %q: use the path of a file or a postgres:// URL", scheme)
	}
	return sqlite.Open(ctx, db)
}

// mustExist returns an error if db is a path without a file. A command that only reads or changes tokens
// calls it, because opening a mistyped path would create a database there.
func mustExist(db string) error {
	if isURL(db) {
		return nil
	}
	if _, err := os.Stat(db); err != nil {
		return fmt.Errorf("--db must be an existing database: %w", err)
	}
	return nil
}

// withStore opens the database, calls do, and closes the database.
func (env environment) withStore(ctx context.Context, db string, do func(store.Store) error) error {
	st, err := env.openStore(ctx, db, true) // the durability of plants does not matter to tokens
	if err != nil {
		return err
	}
	return errors.Join(do(st), st.Close())
}
