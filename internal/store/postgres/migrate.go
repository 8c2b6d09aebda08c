package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed schema/*.sql
var schema embed.FS

const (
	makeVersions = `
		CREATE TABLE IF NOT EXISTS plantstore_schema (
			version integer     NOT NULL PRIMARY KEY,  -- the number of a file in schema/
			applied timestamptz NOT NULL DEFAULT now() -- when
		)`
	lockVersions = "LOCK TABLE plantstore_schema IN EXCLUSIVE MODE"
	lastVersion  = "SELECT coalesce(max(version), 0) FROM plantstore_schema"
	addVersion   = "INSERT INTO plantstore_schema (version) VALUES ($1)"
)

// Another process may be migrating for longer than a create would wait.
const migrationPatience = "120s"

// migrate applies what is new in schema/, in the order of the file names, in one transaction. Any number
// of processes may do so at once: one does the work, and the others wait and find it done. A schema
// that is up to date is only read, so that the user of a replica needs no right to change it.
func migrate(ctx context.Context, config *pgx.ConnConfig, opts Options) error {
	config = config.Copy()
	config.RuntimeParams["lock_timeout"] = migrationPatience
	config.RuntimeParams["statement_timeout"] = "0"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return translate(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := checkSettings(ctx, conn, opts); err != nil {
		return err
	}
	steps, err := fs.Glob(schema, "schema/*.sql")
	if err != nil {
		return err
	}
	applied, err := versionOf(ctx, conn, len(steps))
	if err != nil || applied == len(steps) {
		return err
	}
	if err := makeVersionTable(ctx, conn); err != nil {
		return translate(err)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockVersions); err != nil {
			return translate(err)
		}
		applied, err := versionOf(ctx, conn, len(steps))
		if err != nil {
			return err
		}
		for i := applied; i < len(steps); i++ {
			if err := apply(ctx, tx, steps[i], i+1); err != nil {
				return err
			}
		}
		return nil
	})
	return translate(err)
}

// versionOf is the version of the schema, 0 where there is none. It refuses one that this program does not know.
func versionOf(ctx context.Context, conn *pgx.Conn, known int) (applied int, err error) {
	err = conn.QueryRow(ctx, lastVersion, pgx.QueryExecModeSimpleProtocol).Scan(&applied)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == undefinedTable {
		return 0, nil
	}
	if err == nil && applied > known {
		err = fmt.Errorf("its schema is version %d and this program knows versions up to %d; start the newer program", applied, known)
	}
	return applied, translate(err)
}

// makeVersionTable makes the table that the migrations are counted in. Where several processes do so at
// once, IF NOT EXISTS does not keep the server from telling all but one that the table is there.
func makeVersionTable(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, makeVersions)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case uniqueViolation, duplicateTable, duplicateObject:
			return nil
		}
	}
	return err
}

func apply(ctx context.Context, tx pgx.Tx, step string, version int) error {
	text, err := schema.ReadFile(step)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, string(text), pgx.QueryExecModeSimpleProtocol) // several statements
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == duplicateTable {
		return errors.New("it holds tables of another program; name another database")
	}
	if err == nil {
		_, err = tx.Exec(ctx, addVersion, version)
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", step, translate(err))
	}
	return nil
}
