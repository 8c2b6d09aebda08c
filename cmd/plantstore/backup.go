package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"plantstore/internal/machine"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/transfer"
)

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

// files is the engine whose databases are files.
var files = transfer.Engine{
	Open:      func(path string) (transfer.Database, error) { return sqlite.OpenBackup(path) },
	DropCache: sqlite.DropPageCache,
}

func backup(ctx context.Context, o *backupOptions, env environment) (err error) {
	if (o.to == "") == (o.verify == "") {
		return usagef("one of --to and --verify is required")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	start := time.Now()
	var report transfer.Report
	if o.verify != "" {
		machine.LowerPriority()
		if report, err = transfer.Verify(ctx, o.verify, files); err != nil {
			return err
		}
	} else {
		if err := mustBeFile("--db", o.db); err != nil {
			return err
		}
		report, err = transfer.Backup(ctx, o.to, files, func(ctx context.Context, w io.Writer) error {
			defer machine.LowerPriority() // of the verification; while pages are copied, the WAL grows
			return sqlite.CopyPages(ctx, o.db, w)
		})
		if errors.Is(err, transfer.ErrCopy) {
			return fmt.Errorf("%w; check the database %s with plantstore doctor --integrity", err, o.db)
		}
		if err != nil {
			return err
		}
		if err := sqlite.RecordBackup(o.db, o.to, start); err != nil {
			fmt.Fprintf(env.stderr, "The backup is complete, but its time was not recorded for the metrics: %v.\n", err)
		}
	}
	return printReport(env, report, nil, time.Since(start), o.json,
		fmt.Sprintf("The backup was verified (plants: %d, tokens: %d)", report.Plants(), report.Tokens))
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
	report, err := transfer.Restore(ctx, o.file, o.db, files)
	if err != nil {
		return err
	}
	return printReport(env, report, nil, time.Since(start), o.json,
		fmt.Sprintf("The database was restored (plants: %d, tokens: %d)", report.Plants(), report.Tokens))
}

// mustBeFile returns an error that names the tools of PostgreSQL if db is a URL.
func mustBeFile(flag, db string) error {
	if !isURL(db) {
		return nil
	}
	return usagef("%s must be the path of a file; for PostgreSQL, use pg_dump and pg_restore, or pg_basebackup: "+
		"see https://www.postgresql.org/docs/current/backup.html", flag)
}
