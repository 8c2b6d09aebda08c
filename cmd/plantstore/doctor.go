package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/telemetry"
)

func doctorCommand(env environment) *cobra.Command {
	return command(env, doctor, "doctor", `
Check a database, its files and its servers, and say what to do. The service may run. Nothing is
changed, except that SQLite creates the index (-shm) of a WAL that has none. For a file: durability,
file system, permissions, schema, free space, clock and leftover files. For PostgreSQL: every server
and its settings, schema, privileges and clock. The exit code is 1 if there is a problem, and 0 if
there are only warnings.`, `
  plantstore doctor --db plants.db --integrity
  plantstore doctor --db postgres://plants@db.example/plants --json`)
}

type doctorOptions struct {
	databaseOptions
	integrity bool
}

func (o *doctorOptions) declare(f *flags) {
	o.databaseOptions.declare(f)
	f.BoolVar(&o.integrity, "integrity", false, "read the whole file and check it, which can take minutes")
}

func doctor(ctx context.Context, o *doctorOptions, env environment) (err error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	var found store.Findings
	if postgres.IsURL(o.db) {
		found = postgres.Diagnose(ctx, o.db)
	} else if err := checkDatabase(o.db); err != nil {
		return err
	} else {
		found = sqlite.Diagnose(ctx, o.db, o.integrity)
	}
	if o.json {
		err = env.printJSON(found)
	} else {
		w := newTable(env.stdout)
		for _, f := range found {
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, telemetry.Escape(oneLine(f.Text)))
		}
		err = w.Flush()
	}
	problems := 0
	for _, f := range found {
		if f.Level == "problem" {
			problems++
		}
	}
	if err == nil && problems > 0 {
		err = fmt.Errorf("problems found: %d", problems)
	}
	return err
}
