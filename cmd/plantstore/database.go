package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"plantstore/internal/storage"
	"plantstore/internal/storage/citus"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/sqlite"
)

// database adds the flag --db, which means the same in every command.
func (f *flags) database() *string {
	db := f.String("db", "plantstore.db", "database: the `path` of a file, or a postgres:// URL")
	f.variable("db", "PLANTSTORE_DB", "PLANTSTORE_DB_FILE") // a URL may contain a password
	return db
}

func isURL(db string) bool { return strings.Contains(db, "://") }

// mistypedURL matches addresses of servers that are not URLs, and may contain a password.
var mistypedURL = regexp.MustCompile(`(?i)^postgres(ql)?:|password\s*=`)

// checkDatabase returns an error if the value of a flag, such as --db, selects no engine.
func checkDatabase(flag, db string) error {
	switch {
	case db == "":
		return usagef("%s is empty: use the path of a file or a postgres:// URL", flag)
	case db == ":memory:":
		return usagef("%s is :memory:, which keeps no plant; use plantstore sandbox to try the API", flag)
	case postgres.IsURL(db):
		if _, err := postgres.ParseURL(db); err != nil {
			return usagef("%s: %w", flag, err)
		}
	case isURL(db):
		scheme, _, _ := strings.Cut(db, "://")
		return usagef("%s has the scheme %q: use the path of a file or a postgres:// URL", flag, scheme)
	case mistypedURL.MatchString(db):
		return usagef("%s is the address of a server: use a URL such as postgres://user:password@host:port/database",
			flag)
	}
	return nil
}

// access is what a command does with a database.
type access int

const (
	reads    access = iota // it changes nothing, and refuses a missing database; on SQLite, for milliseconds only
	copies                 // it reads for longer
	writes                 // it refuses a missing database and an older schema
	creates                // it creates a missing database, and refuses an older schema
	migrates               // it refuses a missing database, and migrates an older schema
	serves                 // it creates or migrates; on SQLite, it also recovers from a failure of the process before it
)

func openStorage(ctx context.Context, db string, use access, unsafeDurability bool) (storage.Storage, error) {
	if postgres.IsURL(db) {
		return citus.Open(ctx, db, postgres.Options{
			UnsafeDurability: unsafeDurability, KeepSchema: use == writes || use == creates, ReadOnly: use <= copies,
		})
	}
	switch use {
	case reads:
		return sqlite.OpenBriefly(ctx, db)
	case copies:
		return sqlite.OpenSource(ctx, db)
	case serves:
		return sqlite.Open(ctx, db)
	}
	return sqlite.OpenCommand(ctx, db, use == migrates)
}

// withStorage opens the database, calls do, and closes the database. Opening a mistyped path would create a database
// there.
func (env environment) withStorage(ctx context.Context, db string, use access, do func(storage.Storage) error) error {
	if err := checkDatabase("--db", db); err != nil {
		return err
	}
	if _, err := os.Stat(db); err != nil && use != creates && !isURL(db) {
		return fmt.Errorf("--db must be an existing database: %w", err)
	}
	st, err := env.openStorage(ctx, db, use, true) // the durability of plants does not matter to tokens
	if err != nil {
		return err
	}
	return errors.Join(do(st), st.Close())
}
