package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/httpapi"
	"plantstore/internal/sandbox"
	"plantstore/internal/server"
)

func sandboxCommand(env environment) *cobra.Command {
	f := env.command("sandbox [flags] [-- COMMAND ...]", `
Serve a sandbox from a temporary database. The address and the token are printed. Ctrl-C stops the
service and removes the database. POST /sandboxes creates more sandboxes.

With a command, nothing is printed, and the service stops when the command ends. The environment of
the command has PLANTSTORE_URL, PLANTSTORE_TOKEN and what --env sets, and no other variable
PLANTSTORE_... The exit code is that of the command, 128 plus the number of the signal that ended it,
127 if it was not found, or 126 if it can't be started.

The variables of serve have no effect.`, `
  plantstore sandbox
  plantstore sandbox -- npm test
  plantstore sandbox --env BASE_URL={url} --env API_TOKEN={token} -- npm test`)
	listen := f.String("listen", "127.0.0.1:0", "`address` of the service; port 0 is any free port")
	seed := f.String("seed", "garden", "`plants` of the sandbox: garden (12 plants) or empty")
	variables := f.StringArray("env", nil, "variable `NAME=VALUE` of the command, with {url} and {token}")
	asJSON := f.json()
	var command []string
	f.takes("[COMMAND]...", func(word string) error { command = append(command, word); return nil })
	return f.runs(func(ctx context.Context) error {
		if afterDash := f.cmd.ArgsLenAtDash() == 0; afterDash != (len(command) > 0) {
			return usagef("expected a command after --; see %s --help", f.cmd.CommandPath())
		}
		for _, v := range *variables {
			if strings.Index(v, "=") < 1 || len(command) == 0 {
				return usagef("--env is %q: use NAME=VALUE, and a command after --", v)
			}
		}
		signals := make(chan os.Signal, 8) // none ends the process, because then the database would stay
		signal.Notify(signals, append(stopSignals(), syscall.SIGQUIT)...)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // unlike Ignore, it has no effect on the command
		return env.serveWhile(ctx, *listen, func(url string) error {
			s, err := client.NewSandbox(ctx, url, client.WithSandbox(*seed, 24*time.Hour), client.WithRetries(0, 0))
			switch {
			case err != nil:
				return fmt.Errorf("create a sandbox: %w", err)
			case len(command) > 0:
				return env.runCommand(command, *variables, url, s.Token, signals)
			case *asJSON:
				_, err = fmt.Fprintf(env.stdout, "{\"url\":%q,\"token\":%q}\n", url, s.Token)
			default:
				_, err = fmt.Fprintf(env.stdout, "Plant Store serves %[1]s\nConsole: %[1]s/\nReference: %[1]s/docs\n\n"+
					"The token of a sandbox, until %[3]s UTC:\n\n  %[2]s\n\nList its plants:\n\n"+
					"  curl -i %[1]s/plants -H 'Authorization: Bearer %[2]s'\n\nCtrl-C removes everything.\n",
					url, s.Token, timestamp(s.Expires))
			}
			if err == nil {
				<-signals
			}
			return err
		})
	})
}

// serveWhile serves a database until do returns, and removes it.
func (env environment) serveWhile(ctx context.Context, listen string, do func(url string) error) error {
	folder, err := os.MkdirTemp("", "plantstore-sandbox-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	st, err := env.openStorage(ctx, folder+"/plants.db", serves, false)
	if err != nil {
		return err
	}
	defer st.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := server.Run(ctx, server.Config{
		Listen: listen, OpsListen: "off", Version: versionName(), Sandbox: sandbox.Config{Max: 1000},
		Config:  httpapi.Config{MaxBody: 64 << 10, AccessLog: httpapi.LogNone, Origins: httpapi.Origins{"*"}},
		Log:     slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Started: func(url string) { err = do(url); stop() },
	}, st)
	if ctx.Err() != nil {
		return err // failed is about requests that were cut off
	}
	return failed
}

// runCommand runs a command and returns its exit code as an exitError. A terminal sends SIGINT and SIGQUIT
// to the command too.
func (env environment) runCommand(args, variables []string, url, token string, signals <-chan os.Signal) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, env.stdout, env.stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PLANTSTORE_") })
	for _, v := range append([]string{"PLANTSTORE_URL={url}", "PLANTSTORE_TOKEN={token}"}, variables...) {
		cmd.Env = append(cmd.Env, strings.NewReplacer("{url}", url, "{token}", token).Replace(v))
	}
	if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return exitError{127, err.Error()}
	} else if err != nil {
		return exitError{126, err.Error()}
	}
	terminal, noTerminal := os.Open("/dev/tty")
	terminal.Close()
	go func() {
		hasOwn := noTerminal == nil
		for s := range signals {
			if hasOwn && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
				hasOwn = false // a second one is passed on: kill may have sent both
				continue
			}
			cmd.Process.Signal(s)
		}
	}()
	cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitError{code: 128 + int(status.Signal())}
	}
	return exitError{code: cmd.ProcessState.ExitCode()}
}
