package main

import (
	"context"
	"fmt"
	"strings"

	"plantstore/internal/store"
	"plantstore/internal/store/sqlite"
)

// database adds the flag that means the same in every command.
func (f *flags) database() *string {
	return f.String("db", "plantstore.db", "the database: the `path` of a file")
}

// openStore opens the engine that a --db value names.
func openStore(ctx context.Context, db string) (store.Store, error) {
	if scheme, _, ok := strings.Cut(db, "://"); ok {
		return nil, fmt.Errorf("the database is of the kind %q: expected the path of a file", scheme)
	}
	return sqlite.Open(ctx, db)
}
