// Command plantstore serves the Plant Store API and looks after its database.
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
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, os.Getenv)) }

// version is stamped by the build.
var version string

// environment is what a command may touch outside its arguments.
type environment struct {
	stdout, stderr io.Writer
	getenv         func(string) string
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
	{"plants replace", "give a plant another name and tag", plantsReplace},
	{"plants remove", "remove a plant", plantsRemove},
	{"version", "print the version", printVersion},
}

// errUsage: the command line is wrong; what is wrong has been said already.
var errUsage = errors.New("wrong usage")

// run finds the command and returns the exit code: 0 done, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	env := environment{stdout, stderr, getenv}
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
			fmt.Fprintf(stderr, "plantstore %s: %v\n", c.name, err)
			return 1
		}
	}
	if len(args) > 0 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help") {
		usage(stdout)
		return 0
	}
	if len(args) > 0 {
		fmt.Fprintf(stderr, "plantstore: there is no command %q\n\n", args[0])
	}
	usage(stderr)
	return 2
}

func cutCommand(args []string, name string) ([]string, bool) {
	var words int
	for word := range splitWords(name) {
		if words >= len(args) || args[words] != word {
			return nil, false
		}
		words++
	}
	return args[words:], true
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Plant Store: an authenticated client creates a plant, and it is on disk before the answer leaves.\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  plantstore %-14s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\nEvery command has -h. Every flag can be set in the environment: --base-url is PLANTSTORE_BASE_URL.\n")
}

func printVersion(_ context.Context, env environment, args []string) error {
	if len(args) > 0 {
		fmt.Fprintf(env.stderr, "plantstore version: expected no argument, found %q\n", args[0])
		return errUsage
	}
	v := version
	if info, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = info.Main.Version
	}
	fmt.Fprintf(env.stdout, "plantstore %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
