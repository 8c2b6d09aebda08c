package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

var splitWords = strings.FieldsSeq

// flags is a flag set whose every flag can also be set in the environment.
type flags struct {
	*flag.FlagSet
	env environment
}

func newFlags(env environment, command, arguments, about string) *flags {
	f := &flags{flag.NewFlagSet(command, flag.ContinueOnError), env}
	f.SetOutput(env.stderr)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "Usage: plantstore %s %s\n\n%s\n\n", command, arguments, about)
		f.VisitAll(func(fl *flag.Flag) {
			value, usage := flag.UnquoteUsage(fl)
			fmt.Fprintf(f.Output(), "  --%s %s\n        %s (%s", fl.Name, value, usage, envName(fl.Name))
			if fl.DefValue != "" && fl.DefValue != "false" {
				fmt.Fprintf(f.Output(), ", default %s", fl.DefValue)
			}
			fmt.Fprintln(f.Output(), ")")
		})
	}
	return f
}

// parse reads the command line and then, for every flag that it does not set, the environment.
// It wants exactly the arguments named and returns them. What is wrong it says in one line.
func (f *flags) parse(args []string, names ...string) ([]string, error) {
	usage := f.Usage
	f.FlagSet.Usage = func() {} // of a mistake one line is told, not the whole page
	err := f.FlagSet.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(f.env.stdout)
		usage()
		return nil, err
	}
	if err != nil {
		return nil, errUsage // the flag package has printed the line
	}
	set := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { set[fl.Name] = true })
	f.VisitAll(func(fl *flag.Flag) {
		value := f.env.getenv(envName(fl.Name))
		if set[fl.Name] || value == "" || err != nil {
			return
		}
		if e := f.Set(fl.Name, value); e != nil {
			err = f.wrong("%s=%q: %v", envName(fl.Name), value, e)
		}
	})
	if err != nil {
		return nil, err
	}
	if f.NArg() != len(names) {
		return nil, f.wrong("expected %d arguments (%s), found %d: %q", len(names), strings.Join(names, " "), f.NArg(), f.Args())
	}
	return f.Args(), nil
}

// wrong tells of a mistake in the command line.
func (f *flags) wrong(format string, args ...any) error {
	fmt.Fprintf(f.env.stderr, "plantstore %s: %s\n", f.Name(), fmt.Sprintf(format, args...))
	return errUsage
}

func envName(flag string) string {
	return "PLANTSTORE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// secret is a value from the environment or from a file, never from the command line,
// where every user of the machine could read it.
func (f *flags) secret(name, file string) (string, error) {
	if file == "" {
		return f.env.getenv(name), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	value := strings.TrimSpace(string(text))
	if value == "" {
		return "", fmt.Errorf("the secret: %s is empty", file)
	}
	return value, nil
}

// parseLifetime reads a duration, with d for days: 90d, 12h, 30m.
func parseLifetime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		if n > 36500 {
			err = errors.New("more than a hundred years")
		}
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("the lifetime is %q: expected one such as 90d, 12h or 30m", text)
	}
	return d, nil
}

// rate adds the two flags that rate.Parse reads.
func (f *flags) rate(name, burstName, whose, otherwise string) (limit *string, burst *int64) {
	limit = f.String(name, "", "`rate` "+whose+", such as 100/s, 30/m or 1000/h, counted by each process; more is answered 429 (default: "+otherwise+")")
	burst = f.Int64(burstName, 0, "`requests` that may come at once after a pause; 0 is as many as the rate gives in a second")
	return limit, burst
}

// optional adds a flag that points to nil until it is given.
func optional[T any](f *flags, name, usage string, read func(string) (T, error)) **T {
	value := new(*T)
	f.Func(name, usage, func(text string) error {
		v, err := read(text)
		*value = &v
		return err
	})
	return value
}

func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errors.New("expected an integer that an int64 holds")
	}
	return id, nil
}

// arrange puts flags before arguments, where the flag package wants them, so that they can be
// written in any order; a negative number is an argument, not a flag.
func (f *flags) arrange(args []string) []string {
	var before, after []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			after = append(after, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' || arg[1] >= '0' && arg[1] <= '9' {
			after = append(after, arg)
			continue
		}
		before = append(before, arg)
		fl := f.Lookup(strings.TrimLeft(arg, "-")) // nil also for --name=value
		if fl == nil {
			continue
		}
		if b, ok := fl.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
			continue
		}
		if i++; i == len(args) {
			return before // for the flag package to say that the value is missing
		}
		before = append(before, args[i])
	}
	return append(append(before, "--"), after...)
}
