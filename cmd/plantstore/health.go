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
)

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
