package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/backup"
	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/webhook"
)

func backupCommand(env environment) *cobra.Command {
	f := env.command("backup --to FILE", `
Write a backup of a database file while the service runs. The backup is complete and verified when
it gets its name: its checksum and its integrity. It is a SQLite file that only its owner can read.
An existing file is never replaced.

--verify verifies a backup that was made earlier. For PostgreSQL, use pg_dump or pg_basebackup.`, `
  plantstore backup --db plants.db --to /backup/plants-monday.db
  plantstore backup --verify /backup/plants-monday.db`)
	db := f.database()
	f.Lookup("db").Usage = "`path` of the database, a file"
	to := f.String("to", "", "`path` of the backup, a new file")
	verify := f.String("verify", "", "`path` of a backup to verify, instead of writing one")
	asJSON := f.json()
	return f.runs(func(ctx context.Context) error {
		if (*to == "") == (*verify == "") {
			return usagef("one of --to and --verify is required")
		}
		ctx, stop := untilSignal(ctx)
		defer stop()
		start := time.Now()
		var contents sqlite.Contents
		var err error
		if *verify != "" {
			contents, err = backup.Verify(ctx, *verify)
		} else {
			contents, err = env.writeBackup(ctx, *db, *to, start)
		}
		return env.printContents(contents, err, start, *asJSON, "The backup was verified")
	})
}

func (env environment) writeBackup(ctx context.Context, db, to string, start time.Time) (sqlite.Contents, error) {
	if err := mustBeFile(db); err != nil {
		return sqlite.Contents{}, err
	}
	contents, err := backup.Write(ctx, db, to)
	if err == nil {
		if err := sqlite.RecordBackup(db, to, start); err != nil {
			fmt.Fprintf(env.stderr, "The backup is complete, but its time was not recorded for the metrics: %v.\n", err)
		}
	}
	return contents, err
}

func (env environment) printContents(
	contents sqlite.Contents, err error, start time.Time, asJSON bool, sentence string,
) error {
	if err != nil {
		return err
	}
	took := time.Since(start).Round(time.Millisecond)
	if asJSON {
		return env.printJSON(struct {
			sqlite.Contents
			Seconds float64 `json:"seconds"`
		}{contents, took.Seconds()})
	}
	fmt.Fprintf(env.stderr, "%s (plants: %d, tokens: %d, webhook endpoints: %d) in %v.\n", sentence, contents.Plants,
		contents.Tokens, contents.Webhooks, took)
	return nil
}

func restoreCommand(env environment) *cobra.Command {
	f := env.command("restore FILE", `
Verify a backup and write its database to a new file. Webhook endpoints are disabled in it. An
existing database is never replaced: stop the service, and move the file away together with the
files whose names continue with -wal and -shm.`, `
  plantstore restore /backup/plants-monday.db --db plants.db`)
	db := f.database()
	f.Lookup("db").Usage = "`path` of the database, a new file"
	file, asJSON := f.takesText("FILE"), f.json()
	return f.runs(func(ctx context.Context) error {
		if err := mustBeFile(*db); err != nil {
			return err
		}
		if err := sqlite.CheckAbsent(*db); err != nil {
			return fmt.Errorf("--db: %w", err)
		}
		ctx, stop := untilSignal(ctx)
		defer stop()
		start := time.Now()
		contents, err := backup.Restore(ctx, *file, *db, func(temporary string, c sqlite.Contents) error {
			if c.Webhooks == 0 {
				return nil
			}
			return env.withStorage(ctx, temporary, migrates, func(st storage.Storage) error {
				return webhook.DisableAll(ctx, st, "the database was restored from a backup")
			})
		})
		return env.printContents(contents, err, start, *asJSON, "The database was restored")
	})
}

// mustBeFile returns an error that names the tools of PostgreSQL if db is a URL, and another if it is no path.
func mustBeFile(db string) error {
	if !isURL(db) {
		return checkDatabase("--db", db)
	}
	return usagef("--db must be the path of a file; for PostgreSQL, use pg_dump and pg_restore, or pg_basebackup: " +
		"see https://www.postgresql.org/docs/current/backup.html")
}
