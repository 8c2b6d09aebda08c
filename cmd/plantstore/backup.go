package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/backup"
	"plantstore/internal/store/sqlite"
)

func backupCommand(env environment) *cobra.Command {
	return command(env, writeBackup, "backup --to FILE", `
Write a backup of a database file while the service runs. The backup is complete and verified when
it gets its name: its checksum and its integrity. It is a SQLite file that only its owner can read.
An existing file is never replaced.

--verify verifies a backup that was made earlier. For PostgreSQL, use pg_dump or pg_basebackup.`, `
  plantstore backup --db plants.db --to /backup/plants-monday.db
  plantstore backup --verify /backup/plants-monday.db`)
}

type backupOptions struct {
	db, to, verify string
	json           bool
}

func (o *backupOptions) declare(f *flags) {
	f.database(&o.db)
	f.Lookup("db").Usage = "`path` of the database, a file"
	f.StringVar(&o.to, "to", "", "`path` of the backup, a new file")
	f.StringVar(&o.verify, "verify", "", "`path` of a backup to verify, instead of writing one")
	f.BoolVar(&o.json, "json", false, "print a JSON object, and errors as JSON")
}

func writeBackup(ctx context.Context, o *backupOptions, env environment) error {
	if (o.to == "") == (o.verify == "") {
		return usagef("one of --to and --verify is required")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	start := time.Now()
	if o.verify != "" {
		contents, err := backup.Verify(ctx, o.verify)
		return env.printContents(contents, err, start, o.json, "The backup was verified")
	}
	if err := mustBeFile("--db", o.db); err != nil {
		return err
	}
	contents, err := backup.Write(ctx, o.db, o.to)
	if errors.Is(err, backup.ErrCopy) {
		return fmt.Errorf("%w; check the database %s with plantstore doctor --integrity", err, o.db)
	}
	if err == nil {
		if err := sqlite.RecordBackup(o.db, o.to, start); err != nil {
			fmt.Fprintf(env.stderr, "The backup is complete, but its time was not recorded for the metrics: %v.\n", err)
		}
	}
	return env.printContents(contents, err, start, o.json, "The backup was verified")
}

// printContents prints what a backup contains, unless err is not nil.
func (env environment) printContents(
	contents sqlite.Contents, err error, start time.Time, asJSON bool, sentence string,
) error {
	if err != nil {
		return err
	}
	rows := []storeRow{}
	for _, s := range contents.Stores {
		rows = append(rows, storeRow{Store: s.Name, Plants: s.Plants})
	}
	return env.printStores(rows, contents.Tokens, nil, start, asJSON,
		fmt.Sprintf("%s (plants: %d, tokens: %d)", sentence, total(rows), contents.Tokens))
}

func restoreCommand(env environment) *cobra.Command {
	return command(env, restore, "restore FILE", `
Verify a backup and write its database to a new file. An existing database is never replaced: stop
the service, and move the file away together with the files whose names continue with -wal and -shm.`, `
  plantstore restore /backup/plants-monday.db --db plants.db`)
}

type restoreOptions struct {
	db, file string
	json     bool
}

func (o *restoreOptions) declare(f *flags) {
	f.database(&o.db)
	f.Lookup("db").Usage = "`path` of the database, a new file"
	f.takes("FILE", func(file string) error { o.file = file; return nil })
	f.BoolVar(&o.json, "json", false, "print a JSON object, and errors as JSON")
}

func restore(ctx context.Context, o *restoreOptions, env environment) error {
	if err := mustBeFile("--db", o.db); err != nil {
		return err
	}
	if err := sqlite.CheckAbsent(o.db); err != nil {
		return fmt.Errorf("--db: %w", err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	start := time.Now()
	contents, err := backup.Restore(ctx, o.file, o.db)
	return env.printContents(contents, err, start, o.json, "The database was restored")
}

// mustBeFile returns an error that names the tools of PostgreSQL if db is a URL.
func mustBeFile(flag, db string) error {
	if !isURL(db) {
		return nil
	}
	return usagef("%s must be the path of a file; for PostgreSQL, use pg_dump and pg_restore, or pg_basebackup: "+
		"see https://www.postgresql.org/docs/current/backup.html", flag)
}
