package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

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

// IsSame reports whether two URLs name the same database at the same address.
func IsSame(a, b string) bool {
	configA, errA := parseURL(a)
	configB, errB := parseURL(b)
	if errA != nil || errB != nil {
		return a == b
	}
	x, y := configA.ConnConfig, configB.ConnConfig
	return x.Host == y.Host && x.Port == y.Port && x.Database == y.Database
}
