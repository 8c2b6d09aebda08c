package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/dbcopy"
)

func copyCommand(env environment) *cobra.Command {
	f := env.command("copy --from DATABASE --to DATABASE", `
Copy all plants and tokens to another database. Both can be on any engine, and the copy is verified.
Stop the service first, and start it on the target afterwards: tokens stay valid.

After an interruption the same command continues. The source does not change. A target with other
plants or tokens is refused.`, `
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
	if err != nil {
		return err
	}
	r := transfer{Created: &report.Created, Tokens: report.Tokens}
	for _, s := range report.Stores {
		r.add(s.Name, s.Plants, s.Hash)
	}
	return env.printTransfer(r, start, asJSON, fmt.Sprintf("The target has all plants (%d) and tokens (%d) of the "+
		"source; this run created %d", r.Plants, r.Tokens, report.Created))
}

// copy opens both databases and copies one to the other.
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
	return dbcopy.Copy(ctx, source, target, &done)
}

// isSameDatabase reports whether two values of --db are the same text or name the same file.
func isSameDatabase(a, b string) bool {
	fileA, errA := os.Stat(a)
	fileB, errB := os.Stat(b)
	return a == b || errA == nil && errB == nil && os.SameFile(fileA, fileB)
}

// transfer is what is printed of a copy or a backup. Only a copy has hashes and Created.
type transfer struct {
	Stores  []storeRow `json:"stores"`
	Plants  int64      `json:"plants"`
	Created *int64     `json:"created,omitzero"`
	Tokens  int        `json:"tokens"`
	Seconds float64    `json:"seconds"`
}

type storeRow struct {
	Store  string `json:"store"`
	Plants int64  `json:"plants"`
	Hash   string `json:"sha256,omitzero"`
}

func (t *transfer) add(store string, plants int64, hash string) {
	t.Stores = append(t.Stores, storeRow{store, plants, hash})
	t.Plants += plants
}

// printTransfer prints the content of each store, and ends with a sentence on standard error.
func (env environment) printTransfer(t transfer, start time.Time, asJSON bool, sentence string) error {
	took := time.Since(start).Round(time.Millisecond)
	if t.Seconds = took.Seconds(); asJSON {
		return env.printJSON(t)
	}
	w := newTable(env.stdout)
	header := "STORE\tPLANTS"
	if t.Created != nil {
		header += "\tSHA-256"
	}
	fmt.Fprintln(w, header)
	for _, s := range t.Stores {
		fmt.Fprintln(w, strings.TrimSuffix(fmt.Sprintf("%s\t%d\t%s", cell(s.Store), s.Plants, s.Hash), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(env.stderr, "%s in %v.\n", sentence, took)
	return nil
}
