// Command bench compares the service with others, and with itself under other conditions: each in
// a process of its own, driven over loopback by another process, in turns.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

type options struct {
	json    bool
	quick   bool
	rounds  int
	seconds float64
	warm    time.Duration
	preload int64
	only    *regexp.Regexp
	out     string
	dir     string
	profile string
}

func main() {
	// The children end with the thread that started them, so that thread has to be this one.
	runtime.LockOSThread()
	o := options{warm: 500 * time.Millisecond}
	flag.BoolVar(&o.json, "json", false, "print JSON in place of the table")
	flag.BoolVar(&o.quick, "quick", false, "a short run that shows that everything works; its figures mean little")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds: every row is run once in each")
	flag.Float64Var(&o.seconds, "seconds", 3, "measured time of a run; growth rows take a third of it")
	flag.Int64Var(&o.preload, "preload", 10_000_000, "plants in the store that is not empty")
	only := flag.String("only", "", "`regexp` of the rows to run, such as ^(ours|none)$")
	flag.StringVar(&o.out, "out", "", "`folder` to write benchmarks.md and benchmarks.svg to")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "`folder` for the databases, on the disk to be measured")
	flag.StringVar(&o.profile, "profile", "", "`file` to write a profile of the product to; nothing is compared then")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil || flag.NArg() > 0 || o.rounds < 1 || o.seconds <= 0 || o.preload < 1 {
		fmt.Fprintln(os.Stderr, "bench: expected no arguments, one round or more, a time above 0, a valid --only; see -h")
		os.Exit(2)
	}
	if o.quick {
		o.rounds, o.seconds, o.preload, o.warm = 1, 0.6, 200_000, 200*time.Millisecond
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "psbench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL runs as a user of its own
		return err
	}
	began := time.Now()
	b := &bench{ctx: ctx, options: o, dir: dir, progress: newProgress(os.Stderr)}
	defer b.progress.clear()
	if err := b.build(); err != nil {
		return err
	}
	if o.profile != "" {
		return b.profileTo(o.profile)
	}
	machine, err := describe(dir)
	if err != nil {
		return err
	}
	rows, err := b.all()
	if err != nil {
		return err
	}
	b.progress.clear()
	result := newResult(machine, rows, b.faults, began)
	if o.json {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(result); err != nil {
			return err
		}
	} else {
		result.print(os.Stdout)
	}
	if o.out != "" {
		err = errors.Join(result.writeMarkdown(filepath.Join(o.out, "benchmarks.md")),
			os.WriteFile(filepath.Join(o.out, "benchmarks.svg"), chart(result), 0o644))
	}
	if len(b.faults) > 0 {
		err = errors.Join(err, fmt.Errorf("%d runs are not to be trusted: an answer was not 200, or a row is missing; the first: %s", len(b.faults), b.faults[0]))
	}
	return err
}
