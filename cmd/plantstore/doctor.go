package main

import (
	"context"
	"fmt"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/telemetry"
)

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
