package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/dbcopy"
	"plantstore/internal/storage"
	"plantstore/internal/token"
	"plantstore/internal/webhook"
)

func copyCommand(env environment) *cobra.Command {
	f := env.command("copy --from DATABASE --to DATABASE", `
Copy all plants and tokens to another database. Both can be on any engine, and the copy is verified.
Stop the service first, and start it on the target afterwards: tokens stay valid.

After an interruption the same command continues. The source does not change. A target with other
plants or tokens is refused. Sandboxes are not copied.`, `
  plantstore copy --from plants.db --to postgres://plants@db.example/plants
  plantstore copy --from plants.db --to copy.db`)
	from := f.String("from", "", "`database` to copy: the path of a file,\nor a postgres:// URL")
	to := f.String("to", "", "`database` to copy to; a file is created\nif it does not exist")
	unsafe := f.Bool("unsafe-durability", false, "accept a PostgreSQL target that can lose\nconfirmed plants")
	asJSON := f.json()
	return f.runs(func(ctx context.Context) error {
		switch {
		case *from == "" || *to == "":
			return usagef("--from and --to are required")
		case isSameDatabase(*from, *to):
			return usagef("--from and --to are the same database")
		}
		if err := cmp.Or(checkDatabase("--from", *from), checkDatabase("--to", *to)); err != nil {
			return err
		}
		return env.copyAndPrint(ctx, *from, *to, *unsafe, *asJSON)
	})
}

func (env environment) copyAndPrint(ctx context.Context, from, to string, unsafe, asJSON bool) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	start := time.Now()
	report, err := env.copy(ctx, from, to, unsafe)
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("%w; the target keeps what was copied; run the same command again to continue",
			context.Cause(ctx))
	}
	took := time.Since(start).Round(time.Millisecond)
	asPrinted := struct {
		dbcopy.Report
		Seconds float64 `json:"seconds"`
	}{report, took.Seconds()}
	err = printTable(env, asJSON, asPrinted, err, "STORE\tPLANTS\tSHA-256", func(s dbcopy.Store) string {
		return fmt.Sprintf("%s\t%d\t%s", cell(s.Name), s.Plants, s.Hash)
	}, report.Stores...)
	if err == nil && !asJSON {
		fmt.Fprintf(env.stderr, "The target has all plants (%d) and tokens (%d) of the source; this run created %d in %v.\n",
			report.Plants, report.Tokens, report.Created, took)
	}
	return err
}

func (env environment) copy(ctx context.Context, from, to string, unsafe bool) (report dbcopy.Report, err error) {
	source, err := env.openStorage(ctx, from, copies, true)
	if err != nil {
		return report, fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := env.openStorage(ctx, to, writes, unsafe)
	if err != nil {
		return report, fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	var done atomic.Int64
	defer env.showProgress("plants copied or compared", &done)()
	if report, err = dbcopy.Copy(ctx, source, target, &done); err != nil {
		return report, err
	}
	if target.Stats().Nodes != nil {
		all, err := source.Webhooks(ctx, "")
		all = slices.DeleteFunc(all, func(w storage.Webhook) bool { return !w.Removed.IsZero() || token.IsSandbox(w.Store) })
		if len(all) > 0 {
			fmt.Fprintln(env.stderr, "webhook endpoints, which Citus can't have, were not copied:", len(all))
		}
		return report, err
	}
	n, err := webhook.Copy(ctx, source, target, "the database is a copy")
	if n > 0 && err == nil {
		fmt.Fprintln(env.stderr, "webhook endpoints, which are disabled in the target:", n)
	}
	return report, err
}

// isSameDatabase reports whether two values of --db are the same text or name the same file.
func isSameDatabase(a, b string) bool {
	fileA, errA := os.Stat(a)
	fileB, errB := os.Stat(b)
	return a == b || errA == nil && errB == nil && os.SameFile(fileA, fileB)
}
