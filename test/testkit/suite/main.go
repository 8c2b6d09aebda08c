// Command suite runs several go test commands one after the other for make. All of them use one PostgreSQL server. It
// prints a line for each package, the output of tests that failed, and at the end the ten slowest packages and what
// was not tested.
//
//	suite [-citus] -- go test -json ./a ./b -- env CGO_ENABLED=0 go test -json ./c
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
)

func main() {
	citus := flag.Bool("citus", false, "start a Citus cluster too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := withDatabases(*citus, func(env []string) error { return run(ctx, split(flag.Args()), env, os.Stdout) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// withDatabases calls do with the environment of the tests, which names the servers of this run.
func withDatabases(citus bool, do func(env []string) error) error {
	env, stop, err := pgtest.StartForRun(citus)
	if err != nil {
		return err
	}
	return errors.Join(do(env), stop())
}

// split returns the command lines between the arguments --.
func split(args []string) (commands [][]string) {
	for len(args) > 0 {
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		if end > 0 {
			commands = append(commands, args[:end])
		}
		args = args[min(end+1, len(args)):]
	}
	return commands
}

// run runs the commands, all of them even if one fails.
func run(ctx context.Context, commands [][]string, env []string, out io.Writer) error {
	start := time.Now()
	r := report{out: out, output: map[test]*strings.Builder{}}
	for _, command := range commands {
		if err := r.run(ctx, command, env); err != nil {
			return err
		}
	}
	r.print(time.Since(start))
	if r.failed > 0 {
		return fmt.Errorf("%d packages failed", r.failed)
	}
	return nil
}

// report is what the commands printed so far.
type report struct {
	out       io.Writer
	output    map[test]*strings.Builder // of tests that run
	packages  []event
	notTested []string
	failed    int
}

// test is a test of a package. The name of a package itself is empty.
type test struct{ pkg, name string }

// event is a line of the output of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of a package that can't be built
	Elapsed                       float64
}

// run runs one command. A failed test is no error.
func (r *report) run(ctx context.Context, command, env []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env, cmd.Stderr, cmd.WaitDelay = append(os.Environ(), env...), os.Stderr, 30*time.Second
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed := r.failed
	for in := bufio.NewReader(lines); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var e event
		if json.Unmarshal(line, &e) != nil { // go test itself prints text
			fmt.Fprintf(r.out, "%s", line)
			continue
		}
		r.add(e)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && r.failed == failed {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return nil
}

// add counts an event.
func (r *report) add(e event) {
	of := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.output[of] == nil {
			r.output[of] = new(strings.Builder)
		}
		r.output[of].WriteString(e.Output)
	case "pass", "skip", "fail":
		text := ""
		if b := r.output[of]; b != nil {
			text = b.String()
		}
		delete(r.output, of)
		if e.Action == "fail" {
			fmt.Fprint(r.out, text)
		}
		if _, reason, found := strings.Cut(text, "NOT TESTED: "); found && e.Action == "skip" {
			r.notTested = append(r.notTested, strings.TrimSpace(strings.SplitN(reason, "\n", 2)[0]))
		}
		if e.Test == "" {
			r.addPackage(e)
		}
	}
}

func (r *report) addPackage(e event) {
	if e.Action == "skip" { // it has no tests
		return
	}
	result := "ok  "
	if e.Action == "fail" {
		result = "FAIL"
		r.failed++
		for of, text := range r.output { // tests that did not end, because the process did
			if of.pkg == e.Package {
				fmt.Fprint(r.out, text)
			}
		}
	}
	fmt.Fprintf(r.out, "%s %6.1fs %s\n", result, e.Elapsed, e.Package)
	r.packages = append(r.packages, e)
}

// print prints the slowest packages and what was not tested.
func (r *report) print(elapsed time.Duration) {
	slices.SortFunc(r.packages, func(a, b event) int { return int(1000 * (b.Elapsed - a.Elapsed)) })
	fmt.Fprintf(r.out, "\n%d packages in %v. The slowest:\n", len(r.packages), elapsed.Round(time.Second))
	for _, e := range r.packages[:min(10, len(r.packages))] {
		fmt.Fprintf(r.out, "%6.1fs %s\n", e.Elapsed, e.Package)
	}
	if len(r.notTested) > 0 {
		slices.Sort(r.notTested)
		fmt.Fprintf(r.out, "\nNot tested:\n%s\n", strings.Join(slices.Compact(r.notTested), "\n"))
	}
}
