// Command plantstore serves the Plant Store API, manages its tokens and calls a running service.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/store"
	"plantstore/internal/telemetry"
	"plantstore/internal/token"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, os.Getenv)) }

// version is set by the build.
var version string

// environment is what a command uses besides its options.
type environment struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	openStore      func(ctx context.Context, db string, unsafeDurability bool) (store.Store, error)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	return environment{stdout, stderr, getenv, openStore}.run(ctx, args)
}

// run runs the command that args name and returns the exit code.
func (env environment) run(ctx context.Context, args []string) int {
	root := env.commands()
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.SetArgs(negativesLast(root, args))
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := exitCode(err)
	text := telemetry.Escape(oneLine(err.Error()))
	if code == unreachable {
		text += "; check --url, and that the service is running"
	}
	if fl := cmd.Flags().Lookup("json"); fl != nil && (fl.Value.String() == "true" || slices.Contains(args, "--json")) {
		printJSONError(env.stderr, err, text, code)
	} else {
		fmt.Fprintf(env.stderr, "%s: %s\n", cmd.CommandPath(), text)
	}
	return code
}

const unreachable = 5

// exitCode returns the code that plantstore help exit-codes describes.
func exitCode(err error) int {
	_, isUsage := errors.AsType[usageError](err)
	e, isResponse := errors.AsType[*client.Error](err)
	_, isTransport := errors.AsType[*url.Error](err)
	switch {
	case isUsage:
		return 2
	case errors.Is(err, client.ErrUnknown):
		return 1
	case errors.Is(err, token.ErrUnknown), isResponse && e.Number == 40401:
		return 3
	case errors.Is(err, token.ErrNameTaken),
		isResponse && (e.Number == 40009 || e.Status == http.StatusPreconditionFailed):
		return 4
	case !isResponse && isTransport && !errors.Is(err, context.Canceled):
		return unreachable
	case isResponse && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden ||
		e.Status == http.StatusTooManyRequests):
		return 6
	}
	return 1
}

func printJSONError(w io.Writer, err error, text string, code int) {
	line := struct {
		Error   int32  `json:"error,omitzero"`
		Message string `json:"message"`
		Exit    int    `json:"exit"`
	}{Message: text, Exit: code}
	if e, ok := errors.AsType[*client.Error](err); ok && !errors.Is(err, client.ErrUnknown) {
		line.Error = e.Number
		line.Message = strings.TrimPrefix(text, fmt.Sprintf("%d: ", e.Number))
	}
	json.MarshalWrite(w, line)
	fmt.Fprintln(w)
}

// oneLine returns the text of joined errors in one line.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "; ")
}

// negativesLast moves a negative number that is an argument, such as an id, to the end, after "--". It would be read as
// a flag otherwise.
func negativesLast(root *cobra.Command, args []string) []string {
	cmd, _, _ := root.Find(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if i == 0 || len(arg) < 2 || arg[0] != '-' || arg[1] < '0' || arg[1] > '9' {
			continue
		}
		name, isFlag := strings.CutPrefix(args[i-1], "--")
		if fl := cmd.Flags().Lookup(name); !isFlag || fl == nil || fl.NoOptDefVal != "" {
			return slices.Concat(args[:i], args[i+1:], []string{"--", arg})
		}
	}
	return append([]string{}, args...) // cobra reads os.Args for nil
}
