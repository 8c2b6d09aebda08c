package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/storage"
	"plantstore/internal/storage/citus"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/sqlite"
)

func doctorCommand(env environment) *cobra.Command {
	f := env.command("doctor", `
Check a database, its files and its servers, and say what to do. The service may run. Nothing is
changed, except that SQLite creates the index (-shm) of a WAL that has none. For a file: permissions,
file system, free space, schema and tables. For PostgreSQL: every server and its settings,
privileges, schema and tables. The last check prints the settings that serve has in the same
environment. The exit code is 1 if there is a problem, and 0 if there are only warnings.`, `
  plantstore doctor --db plants.db --integrity
  plantstore doctor --db postgres://plants@db.example/plants --json`)
	db, asJSON := f.database(), f.json()
	integrity := f.Bool("integrity", false, "read the whole file and check it, which can take minutes")
	return f.runs(func(ctx context.Context) error {
		ctx, stop := untilSignal(ctx)
		defer stop()
		var found storage.Findings
		if postgres.IsURL(*db) {
			found = citus.Diagnose(ctx, *db)
		} else if err := checkDatabase("--db", *db); err != nil {
			return err
		} else {
			found = sqlite.Diagnose(ctx, *db, *integrity)
		}
		return env.printFindings(append(found, env.checkSettings(f.cmd, *db)), *asJSON)
	})
}

// checkSettings returns the settings that serve has in this environment, or why it would not start with them.
func (env environment) checkSettings(cmd *cobra.Command, db string) storage.Finding {
	command, _, _ := cmd.Root().Find([]string{"serve"})
	serve := command.Flags()
	if err := cmp.Or(env.checkVariables(serve), env.readVariables(serve)); err != nil {
		return storage.Finding{Level: "problem", Check: "settings", Text: err.Error()}
	}
	serve.Set("db", db)
	var values []string
	for _, setting := range env.settings(serve) {
		values = append(values, fmt.Sprint(setting))
	}
	return storage.Finding{Level: "ok", Check: "settings", Text: strings.Join(values, " ")}
}

func (env environment) printFindings(found storage.Findings, asJSON bool) error {
	err := printTable(env, asJSON, found, nil, "", func(f storage.Finding) string {
		return fmt.Sprintf("%s\t%s\t%s", f.Level, f.Check, oneLine(f.Text))
	}, found...)
	problems := 0
	for _, f := range found {
		if f.Level == "problem" {
			problems++
		}
	}
	if err == nil && problems > 0 {
		err = fmt.Errorf("problems found: %d", problems)
	}
	return err
}

func healthCommand(env environment) *cobra.Command {
	f := env.command("health", `
Check whether a running service is ready. The request is sent to /readyz at the address that
--ops-listen of serve sets. The exit code is 0 if the service is ready; otherwise the reason is
printed, and the exit code is 1, also if the service does not respond.`, `
  plantstore health
  plantstore health --url http://10.0.0.7:8081 --timeout 2s`)
	base := f.String("url", "", "`URL` of the health checks\n"+
		"(default: the address in PLANTSTORE_OPS_LISTEN, or http://127.0.0.1:8081)")
	timeout := f.Duration("timeout", 5*time.Second, "how long to wait for the response")
	return f.runs(func(ctx context.Context) error {
		listen := cmp.Or(env.variables["PLANTSTORE_OPS_LISTEN"], "127.0.0.1:8081")
		if *base == "" && listen == "off" {
			return usagef("PLANTSTORE_OPS_LISTEN is off: the service has no health checks")
		}
		ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("no response within %v", *timeout))
		defer cancel()
		return checkReady(ctx, env.stdout, strings.TrimSuffix(cmp.Or(*base, "http://"+listen), "/")+"/readyz")
	})
}

func checkReady(ctx context.Context, stdout io.Writer, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	var direct http.Transport // without the proxy of the environment
	defer direct.CloseIdleConnections()
	response, err := direct.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("not ready: %s: %w", url, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	text := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return fmt.Errorf("not ready: %s: %w", url, err)
	case response.StatusCode == http.StatusServiceUnavailable:
		return errors.New(text) // starts with "not ready"
	case response.StatusCode != http.StatusOK || text != "ready":
		return fmt.Errorf("%s is not the health check of a Plant Store: it returned %s", url, response.Status)
	}
	_, err = fmt.Fprintln(stdout, text)
	return err
}
