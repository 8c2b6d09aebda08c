package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const aboutHealth = `Asks a running service whether it is ready, at /readyz on the address of its health checks
(--ops-listen of serve).
The exit code is 0 if it is ready, and 1 with the reason if not.`

func health(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "health", "[flags]", aboutHealth)
	f.rename["url"] = "PLANTSTORE_HEALTH_URL" // PLANTSTORE_URL is the address of the API
	url := f.String("url", "", "`URL` of the health checks (default: PLANTSTORE_OPS_LISTEN, or http://127.0.0.1:8081)")
	timeout := f.Duration("timeout", 5*time.Second, "how long to wait for the response")
	if _, err := f.parse(args); err != nil {
		return err
	}
	if *timeout <= 0 {
		return f.usageError("--timeout is %v: use more than 0", *timeout)
	}
	if *url == "" {
		address, err := dialable(env.getenv("PLANTSTORE_OPS_LISTEN"))
		if err != nil {
			return f.usageError("%v", err)
		}
		*url = "http://" + address
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("no response within %v", *timeout))
	defer cancel()
	return checkReady(ctx, env.stdout, strings.TrimSuffix(*url, "/")+"/readyz")
}

// dialable returns the address to connect to for an address to listen on: that of this machine if it is any.
func dialable(listen string) (string, error) {
	switch listen {
	case "":
		return "127.0.0.1:8081", nil
	case "off":
		return "", errors.New("PLANTSTORE_OPS_LISTEN is off: the service has no health checks")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("PLANTSTORE_OPS_LISTEN: %w", err)
	}
	switch ip, _ := netip.ParseAddr(host); {
	case host == "" || ip == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case ip == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
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
	if err != nil {
		return fmt.Errorf("not ready: %s: %w", url, err)
	}
	text := strings.TrimSpace(string(body))
	switch {
	case response.StatusCode == http.StatusServiceUnavailable:
		return errors.New(text) // starts with "not ready"
	case response.StatusCode != http.StatusOK || text != "ready":
		return fmt.Errorf("%s is not the health check of a Plant Store: it returned %s", url, response.Status)
	}
	_, err = fmt.Fprintln(stdout, text)
	return err
}
