package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage"
)

//go:embed schema/*.sql
var schema embed.FS

const (
	createVersions = `
		CREATE TABLE IF NOT EXISTS plantstore_schema (
			version integer     NOT NULL PRIMARY KEY,  -- the number of a file in schema/
			applied timestamptz NOT NULL DEFAULT now() -- when it was applied
		)`
	lockMigration = "SELECT pg_advisory_xact_lock(hashtext('plantstore_schema'))"
	selectVersion = "SELECT coalesce(max(version), 0) FROM plantstore_schema"
	insertVersion = "INSERT INTO plantstore_schema (version) VALUES ($1)"
)

// migrationLockTimeout is longer than that of a create: another process may be migrating.
const migrationLockTimeout = "120s"

// prepare finds a cluster and migrates the schema, on a connection of its own.
func (s *Storage) prepare(ctx context.Context, config *pgx.ConnConfig) error {
	config = config.Copy()
	config.RuntimeParams["lock_timeout"] = migrationLockTimeout
	config.RuntimeParams["statement_timeout"] = "0"
	conn, err := Connect(ctx, config, s.opts)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := s.migrate(ctx, conn); err != nil || s.opts.ReadOnly {
		return err
	}
	problems, err := tableProblems(ctx, conn)
	if err != nil {
		return Translate(err)
	}
	return s.opts.Refuse(problems)
}

// migrate applies the new files of schema/, in the order of their names, in one transaction. Any number of
// processes may call it at once: one migrates, and the others wait for it. If the schema is up to date it is
// only read, so that the user of a replica needs no privilege to change it.
func (s *Storage) migrate(ctx context.Context, conn *pgx.Conn) error {
	steps := schemaSteps()
	applied, err := schemaVersion(ctx, conn, len(steps))
	if err != nil {
		return err
	}
	s.from, s.to = applied, len(steps)
	s.cluster, err = s.opts.Find.find(ctx, conn, applied < len(steps) && !s.opts.ReadOnly)
	switch {
	case err != nil || applied == len(steps):
		return err
	case applied == 0 && s.opts.ReadOnly:
		return errors.New("it has no tables of Plant Store; use a database that serve has been started on")
	case applied > 0 && (s.opts.ReadOnly || s.opts.KeepSchema):
		return fmt.Errorf("its schema has version %d and this program needs version %d; make a backup, and run "+
			"plantstore db migrate --db with this database", applied, len(steps))
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		run := func(sql string, args ...any) {
			if err == nil {
				_, err = tx.Exec(ctx, sql, args...)
			}
		}
		session := sessionOf(conn)
		run(applySettings, session.names, session.values, true) // again: conn may be pooled
		run(lockMigration)
		run(createVersions) // IF NOT EXISTS fails without the lock
		if err == nil {
			s.from, err = schemaVersion(ctx, conn, len(steps)) // another process may have migrated it
		}
		for i := s.from; err == nil && i < len(steps); i++ {
			err = apply(ctx, tx, steps[i], i+1)
		}
		return err
	})
	return Translate(err)
}

// schemaSteps returns the files of the migrations in their order. They are embedded: reading them cannot fail.
func schemaSteps() []string {
	steps, _ := fs.Glob(schema, "schema/*.sql")
	return steps
}

// schemaVersion returns the version of the schema, or 0 if there is none. It refuses a newer version than
// this program knows.
func schemaVersion(ctx context.Context, conn *pgx.Conn, known int) (applied int, err error) {
	err = conn.QueryRow(ctx, selectVersion, pgx.QueryExecModeSimpleProtocol).Scan(&applied)
	if hasCode(err, undefinedTable) {
		return 0, nil
	}
	if err == nil && applied > known {
		err = fmt.Errorf("its schema has version %d and this program supports versions up to %d; "+
			"start the newer program", applied, known)
	}
	return applied, Translate(err)
}

func (s *Storage) Migrated() (from, to int) { return s.from, s.to }

func apply(ctx context.Context, tx pgx.Tx, step string, version int) (err error) {
	text, _ := schema.ReadFile(step)
	for statement := range strings.SplitSeq(string(text), ";\n") { // Citus refuses several at once
		if _, err = tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			break
		}
	}
	if hasCode(err, DuplicateTable) {
		return errors.New("it contains tables of another program; use another database")
	}
	if err == nil {
		_, err = tx.Exec(ctx, insertVersion, version)
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", step, Translate(err))
	}
	return nil
}

// Tables are the tables of a cluster too: plants is distributed, and the others are copied to every node.
var Tables = []string{"plants", "tokens", "plantstore_schema"}

// singleTables are used on a single server only. In a cluster, one node alone has them.
var singleTables = []string{"sandboxes", "webhooks", "events", "deliveries", "leases"}

// SelectLines selects lines for storage.Drift about the relations in a WITH query named ours.
//
//go:embed drift.sql
var SelectLines string

// wantLines is what SelectLines returns for a new database.
//
//go:embed tables.txt
var wantLines string

const withTables = `
	WITH ours AS (SELECT * FROM pg_class WHERE oid = ANY (SELECT to_regclass(name) FROM unnest($1::text[]) AS name))
	SELECT line FROM (%s) AS found`

// tableProblems returns what is unsafe about the tables of a database with the schema of this program.
func tableProblems(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, fmt.Sprintf(withTables, SelectLines), slices.Concat(Tables, singleTables))
	if err != nil {
		return nil, err
	}
	have, err := pgx.CollectRows(rows, pgx.RowTo[string])
	isSingle := func(line string) bool {
		table, _, _ := strings.Cut(line, ": ")
		return slices.Contains(singleTables, table)
	}
	want := strings.Split(strings.TrimSpace(wantLines), "\n")
	if !slices.ContainsFunc(have, isSingle) { // on a worker of a cluster
		want = slices.DeleteFunc(want, isSingle)
	}
	return storage.Drift(have, want), err
}

// Refuse returns an error for the first problem of a table that the options do not accept.
func (o Options) Refuse(problems []string) error {
	for _, p := range problems {
		if !(o.UnsafeDurability && strings.Contains(p, " is UNLOGGED")) {
			return fmt.Errorf("%w: %s; plantstore doctor lists every problem", storage.ErrUnavailable, p)
		}
	}
	return nil
}
