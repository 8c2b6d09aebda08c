package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// flags declares the flags and the argument of a command. Flags for connections and for the server, and --json, can
// also be set by an environment variable: see variable. Others can't, because a forgotten variable would change what a
// command does.
type flags struct {
	*pflag.FlagSet
	cmd      *cobra.Command
	env      environment
	argument string // name of the argument, or ""
	set      func(argument string) error
}

// command starts the declaration of a command, which runs completes.
func (env environment) command(use, description, examples string) *flags {
	cmd := newCommand(use, description, examples)
	cmd.Args = cobra.ArbitraryArgs
	return &flags{FlagSet: cmd.Flags(), cmd: cmd, env: env}
}

// runs returns the command, which calls run when its flags and its argument have their values.
func (f *flags) runs(run func(context.Context) error) *cobra.Command {
	f.VisitAll(f.finish)
	f.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.env.readVariables(f.FlagSet); err != nil {
			return err
		}
		isList, isOptional := strings.HasSuffix(f.argument, "..."), strings.HasPrefix(f.argument, "[")
		if n := len(args); (n > 0) != (f.argument != "") && !isOptional || n > 1 && !isList {
			return usagef("expected arguments: %s; got: %q; see %s --help", cmp.Or(f.argument, "none"), args,
				cmd.CommandPath())
		}
		for _, arg := range args {
			if err := f.set(arg); err != nil {
				return usageError{err}
			}
		}
		return run(cmd.Context())
	}
	return f.cmd
}

// takes declares the one argument of a command, or any number of arguments if its name ends with "...". It may be left
// out if its name is in brackets.
func (f *flags) takes(name string, set func(string) error) { f.argument, f.set = name, set }

func (f *flags) takesText(name string) *string {
	text := new(string)
	f.takes(name, func(value string) error { *text = value; return nil })
	return text
}

func (f *flags) json() *bool { return f.Bool("json", false, "print JSON, and errors as JSON") }

const variableKey = "variable"

// variable sets the environment variable of a flag, and optionally another that names a file with the value.
func (f *flags) variable(flag string, names ...string) { f.SetAnnotation(flag, variableKey, names) }

// sameVariable sets the environment variable of a flag to its name, unless it has another: --base-url is
// PLANTSTORE_BASE_URL.
func (f *flags) sameVariable(fl *pflag.Flag) {
	if fl.Annotations[variableKey] == nil {
		f.variable(fl.Name, "PLANTSTORE_"+strings.ToUpper(strings.ReplaceAll(fl.Name, "-", "_")))
	}
}

// finish adds the environment variable of a flag to its help text.
func (f *flags) finish(fl *pflag.Flag) {
	if fl.Name == "json" { // it means the same in every command
		f.sameVariable(fl)
	}
	if names := fl.Annotations[variableKey]; names != nil {
		fl.Usage += "\n(" + strings.Join(names, " or ") + ")"
	}
}

// readVariables sets every flag that the command line does not set from the environment. It returns the first error.
func (env environment) readVariables(f *pflag.FlagSet) (err error) {
	f.VisitAll(func(fl *pflag.Flag) {
		variable := fl.Annotations[variableKey]
		if variable == nil || fl.Changed {
			return
		}
		value, e := env.valueOf(variable)
		if e == nil && value != "" {
			if e = fl.Value.Set(value); e != nil {
				e = invalidValue(variable[0], value, fl, e)
			}
		}
		err = cmp.Or(err, e)
	})
	return err
}

// valueOf returns the value of a variable or, if a second name is given, of the file that the second variable names.
func (env environment) valueOf(variable []string) (string, error) {
	value := env.variables[variable[0]]
	if len(variable) == 1 || env.variables[variable[1]] == "" {
		return value, nil
	}
	if value != "" {
		return "", usagef("%s and %s are both set: use one of them", variable[0], variable[1])
	}
	value, err := readSecret(env.variables[variable[1]])
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable[1], err)
	}
	return value, nil
}

func readSecret(file string) (string, error) {
	text, err := os.ReadFile(file)
	value := strings.TrimSpace(string(text))
	if err == nil && value == "" {
		err = fmt.Errorf("the file %s is empty", file)
	}
	return value, err
}

// otherVariables match variables that are not settings: those of tests, and those that Kubernetes sets for Services
// whose names are plantstore or start with plantstore-.
var otherVariables = regexp.MustCompile(`^PLANTSTORE_(TEST_.*|` +
	`([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=.*|` +
	`PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://.*|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*))$`)

// checkVariables returns an error if a variable is unknown, probably mistyped: the service would not have the settings
// that the operator wanted.
func (env environment) checkVariables(serve *pflag.FlagSet) error {
	known := []string{fixedTokenVariable, tokenVariable, tokenVariable + "_FILE", "PLANTSTORE_URL", "PLANTSTORE_JSON",
		webhookSecretVariable}
	serve.VisitAll(func(fl *pflag.Flag) { known = append(known, fl.Annotations[variableKey]...) })
	for name, value := range env.variables {
		isKnown := slices.Contains(known, name) || otherVariables.MatchString(name+"="+value)
		if strings.HasPrefix(name, "PLANTSTORE_") && value != "" && !isKnown {
			return usagef("unknown environment variable %s; see plantstore serve --help", name)
		}
	}
	return nil
}

// settings returns the values of flags of serve that are set or have a default. The URL of a database is without what
// can be a password.
func (env environment) settings(serve *pflag.FlagSet) (all []any) {
	serve.VisitAll(func(fl *pflag.Flag) {
		value := fl.Value.String()
		if list, ok := fl.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		if fl.Name == "db" && isURL(value) {
			u, err := url.Parse(value)
			if value = "a URL that is invalid"; err == nil {
				value = u.Scheme + "://" + u.Host + u.Path
			}
		}
		if value != "" && fl.Name != "help" {
			all = append(all, slog.String(fl.Name, value))
		}
	})
	if env.variables[fixedTokenVariable] != "" {
		all = append(all, slog.String(fixedTokenVariable, "set"))
	}
	return all
}

// flagError returns the error of a command line that cobra cannot parse.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return invalidValue("--"+e.GetFlag().Name, e.GetValue(), e.GetFlag(), e.Unwrap())
	}
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return unknownCommand(cmd, cmd.Flags().Arg(0))
	}
	return usagef("%w; see %s --help", err, cmd.CommandPath())
}

func invalidValue(name, value string, fl *pflag.Flag, err error) error {
	advice := map[string]string{
		"int": "use a whole number", "int64": "use a whole number",
		"bool": "use true or false", "duration": "use a duration such as 10s or 5m",
	}
	return usagef("%s is %q: %s", name, value, cmp.Or(advice[fl.Value.Type()], err.Error()))
}

func unknownCommand(parent *cobra.Command, name string) error {
	parent.SuggestionsMinimumDistance = 2
	if similar := parent.SuggestionsFor(name); len(similar) > 0 {
		return usagef("unknown command %q; did you mean %q?", name, similar[0])
	}
	return usagef("unknown command %q; see %s --help", name, parent.CommandPath())
}

const maxLifetimeDays = 36500

// parseLifetime parses the duration of a flag, with d for days: 90d, 12h, 30m.
func parseLifetime(flag, text string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(max(-1, min(n, maxLifetimeDays+1))) * 24 * time.Hour
	}
	if err != nil || d < least || d > maxLifetimeDays*24*time.Hour {
		return 0, fmt.Errorf("--%s is %q: use a time such as 90d, 12h or 30m, at most %dd", flag, text, maxLifetimeDays)
	}
	return d, nil
}

// parsePast parses the past time of a flag: a date, a time, or an age such as 30d.
func parsePast(flag, text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	if age, ageErr := parseLifetime(flag, text, 0); ageErr == nil {
		at, err = now.Add(-age), nil
	}
	if err != nil || at.After(now) {
		return at, usagef("--%s is %q: use a past date such as 2026-01-01, or an age such as 30d", flag, text)
	}
	return at, nil
}

// rate adds two flags whose values rate.Parse reads.
func (f *flags) rate(name, burstName, whose, otherwise string) (limit *string, burst *int64) {
	limit = f.String(name, "", "request `rate` "+whose+", such as 100/s, 30/m or 1000/h,\ncounted by each process; "+
		"requests over it get 429\n(default: "+otherwise+")")
	burst = f.Int64(burstName, 0,
		"`requests` allowed at once after a pause;\n0 for as many as the rate allows in a second")
	return limit, burst
}

// optional adds a flag and returns where its value is, which is nil unless it is set.
func optional[T any](f *flags, name, usage string, parse func(string) (T, error)) **T {
	to := new(*T)
	f.Func(name, usage, func(text string) error {
		v, err := parse(text)
		*to = &v
		return err
	})
	return to
}

func verbatim(text string) (string, error) { return text, nil }
