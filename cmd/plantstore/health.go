package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
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
		if *timeout <= 0 {
			return usagef("--timeout is %v: use more than 0", *timeout)
		}
		listen := env.getenv("PLANTSTORE_OPS_LISTEN")
		if *base == "" && listen == "off" {
			return usagef("PLANTSTORE_OPS_LISTEN is off: the service has no health checks")
		}
		if *base == "" {
			*base = "http://" + dialable(cmp.Or(listen, "127.0.0.1:8081"))
			if strings.HasSuffix(*base, ":") {
				return usagef("PLANTSTORE_OPS_LISTEN is %q: use an address such as 127.0.0.1:8081", listen)
			}
		}
		if u, err := url.Parse(*base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usagef("the URL %q is invalid: use one such as http://127.0.0.1:8081", *base)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("no response within %v", *timeout))
		defer cancel()
		return checkReady(ctx, env.stdout, strings.TrimSuffix(*base, "/")+"/readyz")
	})
}

// dialable returns the address to connect to for an address to listen on.
func dialable(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // a service on [::] listens on IPv4 too
	}
	return net.JoinHostPort(host, port)
}

// checkReady prints the response of a service that is ready, and returns an error for any other.
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
