// Package server wires the parts into a running service, in a straight line, and takes it down
// in the reverse order.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"plantstore/api"
	"plantstore/internal/commit"
	"plantstore/internal/console"
	"plantstore/internal/httpapi"
	"plantstore/internal/machine"
	"plantstore/internal/store"
	"plantstore/internal/telemetry"
	"plantstore/internal/token"
)

// Config is what an operator can set. Zero values are not defaults: the command line gives those.
type Config struct {
	Listen    string        // address of the service
	OpsListen string        // address of health; "off" for none
	BaseURL   string        // public address; its path is the prefix of the API; "" for Listen's
	Drain     time.Duration // how long requests under way may take after the signal to stop
	MaxConns  int           // connections at once at most; 0 for what the machine allows
	Token     string        // one fixed credential with every scope on the store "main"; "" for none
	Commit    commit.Options
	httpapi.Config

	Public, Ops net.Listener // in place of the addresses: see Inherit

	Creator httpapi.Creator // in place of group commit on the store: for comparisons; nil in the product

	Out io.Writer // where the address, a first token and a curl line go
	Log *slog.Logger
}

const (
	// The same for every phase of reading, so that a busy connection arms one timer a second: see conn.
	readTimeout  = 30 * time.Second
	writeTimeout = 60 * time.Second
	maxHeader    = 32 << 10

	// What is live is small, a few MiB, so rarer collections cost little memory and save a create a
	// tenth of its time.
	gcPercent = 400
)

// Run serves st until ctx ends, then answers what is under way and returns. The caller closes st.
func Run(ctx context.Context, cfg Config, st store.Store) error {
	public, err := listen(cfg.Public, cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.Listen, cause(err))
	}
	logRequest := cfg.Log.Info
	if cfg.AccessLog == httpapi.LogNone {
		logRequest = func(string, ...any) {}
	}
	limits := machine.Read()
	limitMemory(limits.Memory)
	most := maxConns(limits)
	if cfg.MaxConns > 0 {
		most = cfg.MaxConns
	}
	conns := newListener(public, most, logRequest)
	defer conns.Close()
	base, err := baseURL(cfg.BaseURL, public.Addr())
	if err != nil {
		return err
	}
	fixed, err := fixedToken(ctx, cfg, st)
	if err != nil {
		return err
	}

	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cfg.Commit.Lanes = st.Lanes()
	committer := commit.New(st, cfg.Commit)
	creator := cfg.Creator
	if creator == nil {
		creator = committer
	}
	health := telemetry.NewHealth(st.Check)
	service := &http.Server{
		Handler: httpapi.New(cfg.Config, httpapi.Dependencies{
			Auth:            token.NewAuthenticator(st, fixed, time.Now),
			Creator:         creator,
			Reader:          st,
			Editor:          st,
			Connections:     conns,
			Log:             cfg.Log,
			Prefix:          base.Path,
			CreateQueue:     committer.Queue(),
			MaxMemory:       maxHeld(limits.Memory, cfg.MaxBody),
			DescriptionJSON: api.JSON(base.String()),
			DescriptionYAML: api.YAML(base.String()),
			Pages:           console.Routes(base.Path),
		}),
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: readTimeout,
		MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true, ConnState: conns.state, ConnContext: connContext,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	ops := &http.Server{Handler: health.Handler(), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader}

	var background sync.WaitGroup
	committing, stopCommitting := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { committer.Run(committing) })
	defer background.Wait()
	defer stopCommitting()
	defer func() {
		conns.draining.Store(true)
		service.Close()
	}()

	failed := make(chan error, 2)
	if cfg.OpsListen != "off" {
		l, err := listen(cfg.Ops, cfg.OpsListen)
		if err != nil {
			return fmt.Errorf("listen for health on %s: %w", cfg.OpsListen, cause(err))
		}
		watched := newListener(l, opsConns, logRequest)
		watched.bound = "health may have"
		defer func() {
			watched.draining.Store(true)
			ops.Close()
		}()
		ops.ConnState = watched.state
		background.Go(func() { failed <- ops.Serve(watched) })
		cfg.Log.Info("health", "address", "http://"+l.Addr().String())
	}
	if err := welcome(ctx, cfg, st, base, fixed != nil); err != nil {
		return err
	}
	background.Go(func() { failed <- service.Serve(conns) })
	cfg.Log.Info("serving", "address", base.String(), "listening", public.Addr().String(), "connections", most)

	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	cfg.Log.Info("stopping", "drain", cfg.Drain.String())
	health.Stopping()
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain)
	defer cancel()
	if cut := conns.drain(deadline); cut > 0 {
		return fmt.Errorf("stopped after %v with %d connections cut off in the middle of a request", cfg.Drain, cut)
	}
	cfg.Log.Info("stopped")
	return nil
}

// listen opens an address, unless there is a listener already.
func listen(passed net.Listener, address string) (net.Listener, error) {
	if passed != nil {
		return passed, nil
	}
	return net.Listen("tcp", address)
}

// baseURL is the public address with a path that has no slash at its end.
func baseURL(text string, listening net.Addr) (*url.URL, error) {
	if text == "" {
		text = "http://" + listening.String()
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("the base URL is %q: expected one such as https://plants.example/some/prefix", text)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if strings.ContainsAny(u.Path, "{} ") || u.RawPath != "" || u.Path != "" && path.Clean(u.Path) != u.Path {
		return nil, fmt.Errorf("the base URL is %q: expected a path of plain segments", text)
	}
	return u, nil
}

func fixedToken(ctx context.Context, cfg Config, issued token.Lookup) (*token.Token, error) {
	credential := cfg.Token
	if credential == "" {
		return nil, nil
	}
	if len(credential) < 16 || !token.IsBearer(credential) {
		return nil, fmt.Errorf("the fixed token has %d characters, or some that a bearer token can't have: expected 16 or more of letters, digits and -._~+/", len(credential))
	}
	fixed := &token.Token{Name: "fixed", Hash: token.HashOf(credential), Store: token.DefaultStore, Scopes: token.AllScopes}
	switch t, err := issued.TokenByHash(ctx, fixed.Hash); {
	case err == nil: // a shell that has it for its clients has started the service too
		cfg.Log.Warn("the fixed token was issued in this database: it keeps the rights that it has there", "name", t.Name)
		return nil, nil
	case !errors.Is(err, token.ErrUnknown):
		return nil, err
	}
	return fixed, nil
}

// welcome prints where the service is. On a database without tokens it issues a first one,
// which is shown here and never again.
func welcome(ctx context.Context, cfg Config, st store.Store, base *url.URL, hasFixed bool) error {
	fmt.Fprintf(cfg.Out, "Plant Store serves %s\n", base)
	if hasFixed {
		return nil
	}
	all, err := st.Tokens(ctx)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		fmt.Fprint(cfg.Out, "Another token: plantstore token issue --name NAME, with the same --db\n")
		return nil
	}
	first, credential := token.New("first", token.DefaultStore, token.AllScopes, time.Now(), time.Time{})
	if err := st.AddToken(ctx, first); err != nil {
		if errors.Is(err, token.ErrNameTaken) { // another process on this database was first
			return nil
		}
		return err
	}
	fmt.Fprintf(cfg.Out, `
The first token, with every scope on the store %q. It is shown this once:

  %s

Create a plant:

  curl -i %s/plants \
    -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' \
    -d '{"id":1,"name":"Monstera deliciosa","tag":"climber"}'

`, token.DefaultStore, credential, base, credential)
	return nil
}

// cause is the end of a chain of network errors: what a person needs of them.
func cause(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}
