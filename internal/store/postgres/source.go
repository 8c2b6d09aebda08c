package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// OpenSource opens a database for reading only, whatever the durability of its server. It creates and migrates
// nothing, and refuses a database whose schema is older or newer.
func OpenSource(ctx context.Context, address string) (*Store, error) {
	config, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := checkSchema(ctx, config.ConnConfig); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", displayURL(config.ConnConfig), err)
	}
	return Open(ctx, address, Options{UnsafeDurability: true})
}

// checkSchema returns an error unless the schema is the one of this program.
func checkSchema(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := connect(ctx, config, Options{UnsafeDurability: true})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	steps, err := fs.Glob(schema, "schema/*.sql")
	if err != nil {
		return err
	}
	applied, err := schemaVersion(ctx, conn, len(steps))
	switch {
	case err != nil:
		return err
	case applied == 0:
		return errors.New("it has no tables of Plant Store; use a database that serve has been started on")
	case applied < len(steps):
		return fmt.Errorf("its schema has version %d and must be migrated to %d first; "+
			"run plantstore token list --db with this database", applied, len(steps))
	}
	return nil
}

const (
	takeLock = "SELECT pg_advisory_xact_lock($1, $2)"

	findLock = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = %d
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`

	findLockOnNodes = "SELECT bool_or(success AND result = 't') FROM run_command_on_all_nodes($1)"
)

// IsSame reports whether two stores are the same database, whatever the addresses by which they were opened: one
// takes a lock, and the other looks for it.
func IsSame(ctx context.Context, a, b *Store) (same bool, err error) {
	class, object := rand.Int32(), rand.Int32()
	find := fmt.Sprintf(findLock, class, object)
	err = a.read(ctx, readTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, takeLock, class, object); err != nil {
				return err
			}
			return b.read(ctx, readTimeout, func(ctx context.Context, conn *pgx.Conn) error {
				if b.citus {
					return conn.QueryRow(ctx, findLockOnNodes, find).Scan(&same)
				}
				return conn.QueryRow(ctx, find).Scan(&same)
			})
		})
	})
	return same, err
}
