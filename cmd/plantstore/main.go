// Command plantstore serves the Plant Store API, manages its tokens and calls a running service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"plantstore/internal/store"
	"plantstore/internal/telemetry"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, os.Getenv)) }

// version is set by the build.
var version string

// environment is what a command uses besides its arguments.
type environment struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	openStore      func(ctx context.Context, db string, unsafeDurability bool) (store.Store, error)
}

type command struct {
	name, summary string
	run           func(ctx context.Context, env environment, args []string) error
}

var commands = []command{
	{"serve", "serve the API", serve},
	{"token issue", "issue a token and print it", tokenIssue},
	{"token list", "list tokens", tokenList},
	{"token revoke", "revoke a token", tokenRevoke},
	{"plants create", "create a plant in a running service", plantsCreate},
	{"plants get", "print a plant", plantsGet},
	{"plants list", "print the plants of a store", plantsList},
	{"plants replace", "change the name and tag of a plant", plantsReplace},
	{"plants remove", "remove a plant", plantsRemove},
	{"copy", "copy plants and tokens to another database", copyDatabase},
	{"db status", "print the state of a database and of its servers", dbStatus},
	{"db distribute", "distribute a PostgreSQL database over a Citus cluster", dbDistribute},
	{"health", "ask a running service whether it is ready", health},
	{"version", "print the version", printVersion},
}

// errUsage reports a mistake in the command line that has been printed already.
var errUsage = errors.New("invalid usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	return environment{stdout, stderr, getenv, openStore}.run(ctx, args)
}

// run runs the command that args name and returns the exit code: 0 done, 1 failed, 2 invalid usage.
func (env environment) run(ctx context.Context, args []string) int {
	for _, c := range commands {
		rest, ok := cutCommand(args, c.name)
		if !ok {
			continue
		}
		switch err := c.run(ctx, env, rest); {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			return 2
		default:
			fmt.Fprintf(env.stderr, "plantstore %s: %s\n", c.name, telemetry.Escape(oneLine(err.Error())))
			return 1
		}
	}
	if len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help") {
		usage(env.stdout)
		return 0
	}
	if len(args) > 0 {
		fmt.Fprintf(env.stderr, "plantstore: unknown command %q\n\n", args[0])
	}
	usage(env.stderr)
	return 2
}

// oneLine returns the text of joined errors in one line.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "; ")
}

// cutCommand returns the arguments after the words of a command, if args start with them.
func cutCommand(args []string, name string) ([]string, bool) {
	words := strings.Fields(name)
	if len(args) < len(words) || !slices.Equal(args[:len(words)], words) {
		return nil, false
	}
	return args[len(words):], true
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Plant Store stores plants durably: a create is on disk before its response is sent.\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  plantstore %-14s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nRun a command with -h for its flags. Every flag can be set in the environment: "+
		"--base-url is PLANTSTORE_BASE_URL.\n")
}

func printVersion(_ context.Context, env environment, args []string) error {
	if len(args) > 0 {
		fmt.Fprintf(env.stderr, "plantstore version: expected arguments: none; got: %q\n", args)
		return errUsage
	}
	v := version
	if info, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = info.Main.Version
	}
	_, err := fmt.Fprintf(env.stdout, "plantstore %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
