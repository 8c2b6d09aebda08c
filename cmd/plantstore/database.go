package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
)

// database adds the flag that means the same in every command.
func (f *flags) database() *string {
	return f.String("db", "plantstore.db", "the database: the `path` of a file, or a postgres:// URL")
}

func isURL(db string) bool { return strings.Contains(db, "://") }

// openStore opens the engine that a --db value names.
func openStore(ctx context.Context, db string, unsafeDurability bool) (store.Store, error) {
	switch {
	case db == "":
		return nil, errors.New("--db is empty: expected the path of a file or a postgres:// URL")
	case postgres.IsURL(db):
		return postgres.Open(ctx, db, postgres.Options{UnsafeDurability: unsafeDurability})
	case isURL(db):
		scheme, _, _ := strings.Cut(db, "://")
		return nil, fmt.Errorf("the database is of the kind %q: expected the path of a file or a postgres:// URL", scheme)
	}
	return sqlite.Open(ctx, db)
}
