package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/telemetry"
	"plantstore/internal/transfer"
)

type copyOptions struct {
	from, to, others    string
	check, unsafe, json bool
}

func (o *copyOptions) declare(f *flags) {
	f.StringVar(&o.from, "from", "", "`database` to copy: the path of a file,\nor a postgres:// URL")
	f.StringVar(&o.to, "to", "", "`database` to copy to; a file is created\nif it does not exist")
	f.StringVar(&o.others, "others", string(transfer.Refuse),
		"`action` for plants that only the target has, or that it has\nwith a different name or tag: refuse both, "+
			"keep (those that\nonly the target has; refuse the others) or overwrite (remove\nor replace them)")
	f.values("others", string(transfer.Refuse), string(transfer.Keep), string(transfer.Overwrite))
	f.BoolVar(&o.check, "check", false, "compare the databases and write nothing")
	f.BoolVar(&o.unsafe, "unsafe-durability", false, "accept a PostgreSQL target that can lose\nconfirmed plants")
	f.BoolVar(&o.json, "json", false, "print a JSON object, and errors as JSON")
}

func copyDatabase(ctx context.Context, o *copyOptions, env environment) error {
	opts := transfer.Options{Others: transfer.Others(o.others), Progress: new(transfer.Progress)}
	switch {
	case o.from == "" || o.to == "":
		return usagef("--from and --to are required")
	case isSameDatabase(o.from, o.to):
		return usagef("--from and --to are the same database")
	case isURL(o.from) && !postgres.IsURL(o.from):
		return usagef("--from must be the path of a file or a postgres:// URL")
	case isURL(o.to) && !postgres.IsURL(o.to):
		return usagef("--to must be the path of a file or a postgres:// URL")
	case !opts.Others.Valid():
		return usagef("--others is %q: use refuse, keep or overwrite", o.others)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	start := time.Now()
	hideProgress := showProgress(env.stderr, opts.Progress.Now)
	report, err := env.transfer(ctx, o, opts)
	hideProgress()
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("%w; the target keeps what was copied; run the same command again to continue",
			context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	return printReport(env, report, &report.Created, time.Since(start), o.json, fmt.Sprintf(
		"The target has all plants (%d) and tokens (%d) of the source; this run created %d",
		report.Plants(), report.Tokens, report.Created))
}

// transfer opens both databases and copies or compares them.
func (env environment) transfer(
	ctx context.Context, o *copyOptions, opts transfer.Options,
) (report transfer.Report, err error) {
	source, err := openSource(ctx, "--from", o.from)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	var target store.Store
	if o.check {
		target, err = openSource(ctx, "--to", o.to)
	} else if target, err = env.openStore(ctx, o.to, writes, o.unsafe); err != nil {
		err = fmt.Errorf("--to: %w", err)
	}
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if err := mustDiffer(ctx, source, target); err != nil {
		return report, err
	}
	if o.check {
		return transfer.Check(ctx, source, target, opts)
	}
	return transfer.Copy(ctx, source, target, opts)
}

// mustDiffer returns an error if two addresses lead to the same PostgreSQL database. A copy of a database to itself
// could remove plants that are created meanwhile.
func mustDiffer(ctx context.Context, source, target store.Store) error {
	a, okA := source.(*postgres.Store)
	b, okB := target.(*postgres.Store)
	if !okA || !okB {
		return nil
	}
	same, err := postgres.IsSame(ctx, a, b)
	if err == nil && same {
		err = errors.New("--from and --to are the same database, or nodes of the same cluster")
	}
	return err
}

// openSource opens an existing database for reading.
func openSource(ctx context.Context, flag, db string) (st store.Store, err error) {
	if postgres.IsURL(db) {
		st, err = postgres.OpenSource(ctx, db)
	} else {
		st, err = sqlite.OpenSource(ctx, db)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return st, nil
}

// isSameDatabase reports whether two values of --db are the same text or name the same file.
func isSameDatabase(a, b string) bool {
	fileA, errA := os.Stat(a)
	fileB, errB := os.Stat(b)
	return a == b || errA == nil && errB == nil && os.SameFile(fileA, fileB)
}

// printReport prints the content of each store, and ends with a sentence on standard error.
func printReport(
	env environment, report transfer.Report, created *int64, took time.Duration, asJSON bool, sentence string,
) error {
	type row struct {
		Store  string `json:"store"`
		Plants int64  `json:"plants"`
		Hash   string `json:"sha256"`
		Others int64  `json:"others,omitzero"`
	}
	rows := []row{}
	for _, s := range report.Stores {
		rows = append(rows, row{s.Name, s.Plants, s.Hash.String(), s.Others})
	}
	took = took.Round(time.Millisecond)
	if asJSON {
		return env.printJSON(struct {
			Stores  []row   `json:"stores"`
			Plants  int64   `json:"plants"`
			Created *int64  `json:"created,omitzero"`
			Tokens  int     `json:"tokens"`
			Seconds float64 `json:"seconds"`
		}{rows, report.Plants(), created, report.Tokens, took.Seconds()})
	}
	w := env.table(env.stdout, 0)
	fmt.Fprintln(w, "STORE\tPLANTS\tSHA-256")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\n", cell(r.Store), r.Plants, r.Hash)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(env.stderr, "%s in %v.\n", sentence, took)
	return nil
}

const (
	barInterval  = 200 * time.Millisecond
	lineInterval = 10 * time.Second
	clearLine    = "\r\x1b[K" // on a terminal
)

// showProgress writes the progress to w until the returned function is called: a bar on a terminal, and otherwise a
// line every lineInterval.
func showProgress(w io.Writer, progress func() (transfer.Phase, int64)) (hide func()) {
	interval, before, after := lineInterval, "", "\n"
	if telemetry.IsTerminal(w) {
		interval, before, after = barInterval, clearLine, ""
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		meter := meter{last: time.Now()}
		for {
			select {
			case now := <-tick.C:
				phase, done := progress()
				fmt.Fprint(w, before, meter.line(phase, done, now), after)
			case <-stop:
				fmt.Fprint(w, before)
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// showBar is showProgress on a terminal, and shows nothing elsewhere.
func (env environment) showBar(progress func() (transfer.Phase, int64)) (hide func()) {
	if !telemetry.IsTerminal(env.stderr) {
		return func() {}
	}
	return showProgress(env.stderr, progress)
}

// printAbove prints a line to standard error, on a terminal in place of the progress, which is shown below it again.
func (env environment) printAbove(text string) {
	if telemetry.IsTerminal(env.stderr) {
		text = clearLine + text
	}
	fmt.Fprint(env.stderr, text+"\n")
}
