// Command bench compares the service with other systems, and with itself under other conditions. Each
// runs in its own process and another process sends the load, over loopback; the runs are interleaved.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

const minStored = 2000 // so that a list can start anywhere

type options struct {
	json    bool
	quick   bool
	rounds  int
	seconds float64
	warm    time.Duration
	preload int64
	stored  int64
	minute  bool
	growth  bool
	only    *regexp.Regexp
	out     string
	dir     string
	profile string
	save    string
	compare string
	against string
	wait    time.Duration // for other virtual machines that disturb runs, in total
}

func main() {
	// The kernel kills the children when the thread that started them exits, so it must be this one.
	runtime.LockOSThread()
	o := options{warm: 500 * time.Millisecond}
	flag.BoolVar(&o.json, "json", false, "print JSON instead of the table")
	flag.BoolVar(&o.quick, "quick", false, "make a short run to see that everything works; its figures mean little")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; every row runs once in each")
	flag.Float64Var(&o.seconds, "seconds", 2, "measured time of a run; a third for other conditions, a quarter for reads")
	flag.Int64Var(&o.preload, "preload", 10_000_000, "plants in the store with many plants; 100000000 with --growth")
	flag.Int64Var(&o.stored, "stored", 1_000_000, "plants in the store for reads and edits; 10000000 with --growth")
	flag.BoolVar(&o.minute, "minute", false, "search for slow responses: a minute of creates in each of six rows")
	flag.BoolVar(&o.growth, "growth", false, "compare stores of --preload plants with stores of --stored plants")
	only := flag.String("only", "", "`regexp` of the rows to run, such as ^(ours|none)$")
	flag.StringVar(&o.out, "out", "", "`folder` for benchmarks.md and benchmarks.svg; not with --minute and --growth")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "`folder` for the databases, on the disk to measure")
	flag.StringVar(&o.save, "save", "", "also write the JSON to this `file`")
	flag.StringVar(&o.compare, "compare", "", "also compare with the run that --save or --json wrote to this `file`")
	flag.StringVar(&o.against, "against", "",
		"compare the service only with that of a git `revision`, or with the bare handler (bare), both in turns; "+
			"--only chooses rows, by default ours")
	flag.DurationVar(&o.wait, "wait", 0, "`time`, in total, to wait before repetitions until other virtual machines stop")
	flag.StringVar(&o.profile, "profile", "", "write a profile of the product to this `file` and compare nothing")
	flag.Parse()
	var err error
	o.only, err = regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: --only:", err)
		os.Exit(2)
	}
	if flag.NArg() > 0 || o.rounds < 1 || o.seconds <= 0 || o.preload < minStored || o.stored < minStored {
		fmt.Fprintf(os.Stderr, "bench: takes no arguments; --rounds and --seconds must be positive, "+
			"--preload and --stored at least %d; see -h\n", minStored)
		os.Exit(2)
	}
	if o.out != "" && (o.minute || o.growth) {
		fmt.Fprintln(os.Stderr, "bench: --out has no page for --minute and --growth; --save writes their figures")
		os.Exit(2)
	}
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	preset := func(rounds int, seconds float64) {
		if !set["rounds"] {
			o.rounds = rounds
		}
		if !set["seconds"] {
			o.seconds = seconds
		}
	}
	switch {
	case o.minute:
		preset(1, 60)
	case o.growth:
		preset(3, 4)
		if !set["preload"] {
			o.preload = 100_000_000
		}
		if !set["stored"] {
			o.stored = 10_000_000
		}
	case o.against != "":
		preset(20, 2)
		if *only == "" {
			o.only = regexp.MustCompile("^ours$")
		}
	}
	if o.quick {
		o.rounds, o.seconds, o.preload, o.stored, o.warm = 1, 0.6, 200_000, 200_000, 200*time.Millisecond
		if o.growth {
			o.preload = 2_000_000
		}
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
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL runs as another user
		return err
	}
	began := time.Now()
	b := &bench{ctx: ctx, options: o, dir: dir, progress: newProgress(os.Stderr), report: comparison}
	switch {
	case o.minute:
		b.report.targets = minuteTargets
	case o.growth:
		b.report = growth
	}
	defer b.progress.clear()
	if err := b.build(); err != nil {
		return err
	}
	if o.profile != "" {
		return b.profileTo(o.profile)
	}
	if o.against != "" {
		return b.against(o.against)
	}
	var old result
	if o.compare != "" { // before the run, so that a missing file is found at once
		if old, err = readResult(o.compare); err != nil {
			return err
		}
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
	result := newResult(machine, rows, b.faults, began, b.report)
	result.Repeated = b.repeated
	if err := result.write(o, old); err != nil {
		return err
	}
	return b.invalid()
}

// write prints a result and writes the files that the options name.
func (res result) write(o options, old result) error {
	text, err := json.MarshalIndent(res, "", "  ")
	if err != nil {
		return err
	}
	if o.save != "" {
		err = os.WriteFile(o.save, append(text, '\n'), 0o644)
	}
	if o.out != "" {
		err = errors.Join(err, res.writePage(o.out))
	}
	if o.json {
		fmt.Printf("%s\n", text)
		return err
	}
	res.print(os.Stdout)
	if o.compare != "" {
		res.printSince(os.Stdout, old)
	}
	return err
}

// invalid returns an error if a run had a fault.
func (b *bench) invalid() error {
	if len(b.faults) == 0 {
		return nil
	}
	return fmt.Errorf("%d runs are not valid: a response was not 200, or a row is missing; the first: %s",
		len(b.faults), b.faults[0])
}
