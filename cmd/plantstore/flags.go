package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// flags is a flag set in which every flag can also be set by an environment variable.
type flags struct {
	*flag.FlagSet
	env    environment
	rename map[string]string // variables of flags that mean something else in other commands
}

func newFlags(env environment, command, arguments, about string) *flags {
	f := &flags{flag.NewFlagSet(command, flag.ContinueOnError), env, map[string]string{}}
	f.SetOutput(env.stderr)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "Usage: plantstore %s %s\n\n%s\n\n", command, arguments, about)
		f.VisitAll(func(fl *flag.Flag) {
			value, usage := flag.UnquoteUsage(fl)
			fmt.Fprintf(f.Output(), "  --%s %s\n        %s (%s", fl.Name, value, usage, f.variable(fl.Name))
			if fl.DefValue != "" && fl.DefValue != "false" && !strings.Contains(usage, "(default:") {
				fmt.Fprintf(f.Output(), ", default %s", fl.DefValue)
			}
			fmt.Fprintln(f.Output(), ")")
		})
	}
	return f
}

// parse reads the command line and then, for every flag that it does not set, the environment. It
// returns the arguments, which must be as many as names. It prints what is wrong in one line.
func (f *flags) parse(args []string, names ...string) ([]string, error) {
	usage := f.Usage
	f.FlagSet.Usage = func() {} // the flag package would print it after every mistake
	err := f.FlagSet.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(f.env.stdout)
		usage()
		return nil, err
	}
	if err != nil {
		return nil, errUsage // the flag package has printed the error
	}
	set := map[string]bool{}
	f.Visit(func(fl *flag.Flag) { set[fl.Name] = true })
	f.VisitAll(func(fl *flag.Flag) {
		value := f.env.getenv(f.variable(fl.Name))
		if set[fl.Name] || value == "" || err != nil {
			return
		}
		if e := f.Set(fl.Name, value); e != nil {
			err = f.usageError("%s=%q: %v", f.variable(fl.Name), value, e)
		}
	})
	if err != nil {
		return nil, err
	}
	if f.NArg() != len(names) {
		want := cmp.Or(strings.Join(names, " "), "none")
		return nil, f.usageError("expected arguments: %s; got: %q", want, f.Args())
	}
	return f.Args(), nil
}

// usageError prints a mistake in the command line and returns errUsage.
func (f *flags) usageError(format string, args ...any) error {
	text := oneLine(fmt.Sprintf(format, args...))
	fmt.Fprintf(f.env.stderr, "plantstore %s: %s\n", f.Name(), text)
	return errUsage
}

// variable returns the environment variable of a flag.
func (f *flags) variable(flag string) string {
	if name := f.rename[flag]; name != "" {
		return name
	}
	return "PLANTSTORE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// secret returns a token from a file, or from an environment variable if file is empty, and where it is from. A token
// on the command line would be visible to other users of the machine.
func (f *flags) secret(variable, file string) (value, from string, err error) {
	if file == "" {
		return f.env.getenv(variable), variable, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("read the token file: %w", err)
	}
	value = strings.TrimSpace(string(text))
	if value == "" {
		return "", "", fmt.Errorf("the token file %s is empty", file)
	}
	return value, file, nil
}

const maxLifetimeDays = 36500

// parseLifetime parses a positive duration, with d for days: 90d, 12h, 30m.
func parseLifetime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(max(0, min(n, maxLifetimeDays+1))) * 24 * time.Hour
	}
	if err != nil || d <= 0 || d > maxLifetimeDays*24*time.Hour {
		return 0, fmt.Errorf("--expires is %q: use a lifetime such as 90d, 12h or 30m, at most %dd", text, maxLifetimeDays)
	}
	return d, nil
}

// rate adds the two flags whose values rate.Parse reads.
func (f *flags) rate(name, burstName, whose, otherwise string) (limit *string, burst *int64) {
	limit = f.String(name, "", "request `rate` "+whose+", such as 100/s, 30/m or 1000/h, counted by each process; "+
		"requests over it get 429 (default: "+otherwise+")")
	burst = f.Int64(burstName, 0, "`requests` allowed at once after a pause; 0 for as many as the rate allows in a second")
	return limit, burst
}

// optional adds a flag whose value is nil unless it is set.
func optional[T any](f *flags, name, usage string, parse func(string) (T, error)) **T {
	value := new(*T)
	f.Func(name, usage, func(text string) error {
		v, err := parse(text)
		*value = &v
		return err
	})
	return value
}

// flagsFirst moves flags before arguments, as the flag package requires, so that they can be given in any
// order. A negative number is an argument.
func (f *flags) flagsFirst(args []string) []string {
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
			return before // the flag package reports the missing value
		}
		before = append(before, args[i])
	}
	return append(append(before, "--"), after...)
}
