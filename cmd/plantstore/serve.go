package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/httpapi"
	"plantstore/internal/rate"
	"plantstore/internal/sandbox"
	"plantstore/internal/server"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/systemd"
	"plantstore/internal/telemetry"
	"plantstore/internal/token"
	"plantstore/internal/token/oidc"
	"plantstore/internal/webhook"
)

// fixedTokenVariable differs from PLANTSTORE_TOKEN of the client: otherwise, a read-only token that is exported in the
// shell would get every scope.
const fixedTokenVariable = "PLANTSTORE_FIXED_TOKEN"

func serveCommand(env environment) *cobra.Command {
	f := env.command("serve", `
Serve the API. SIGINT, SIGTERM or SIGHUP stops it: requests in flight are completed first. A second
SIGINT or SIGTERM stops it immediately. With TLS, SIGHUP does nothing.

PLANTSTORE_FIXED_TOKEN or --token-file sets one fixed token with every scope. Sockets passed by
systemd (LISTEN_FDS) replace --listen and --ops-listen. With --oidc-issuer and --oidc-audience,
tokens of an identity provider are accepted too.`, `
  plantstore serve
  plantstore serve --db plants.db --listen 0.0.0.0:8080 --base-url https://plants.example
  plantstore serve --db postgres://plants@db.example/plants --default-rate 100/s
  plantstore serve --listen 0.0.0.0:8443 --tls-cert tls.crt --tls-key tls.key
  plantstore serve --oidc-issuer https://id.example/realms/shop --oidc-audience plants
  plantstore serve --listen 0.0.0.0:443 --acme-domain plants.example`)
	var o serveOptions
	o.declare(f)
	return f.runs(func(ctx context.Context) error {
		cfg, err := o.config(env)
		if err = cmp.Or(env.checkVariables(f.FlagSet), err); err != nil {
			return err
		}
		cfg.Out, cfg.Log = env.stdout, telemetry.NewLogger(env.stderr)
		return o.serve(ctx, cfg, env, env.settings(f.FlagSet))
	})
}

type serveOptions struct {
	server.Config
	db                    *string
	unsafe                bool
	access, cors, proxies string
	rate                  *string
	burst                 *int64
	sandbox               bool
	sandboxRate           string
	targets, proxy        string
	tokenFile             string
	tls                   tlsFlags
	oidc                  oidc.Config
}

func (o *serveOptions) serve(ctx context.Context, cfg server.Config, env environment, settings []any) error {
	if o.tls.enabled() {
		signal.Ignore(syscall.SIGHUP) // sent by tools that renew certificates, which are read again anyway
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	keepCertificates, err := o.tls.configure(&cfg)
	if err != nil {
		return err
	}
	cfg.Started = func(string) {
		go keepCertificates(ctx)
		systemd.Ready("serving")
		go systemd.Watchdog(context.WithoutCancel(ctx)) // until the process ends
	}
	context.AfterFunc(ctx, func() { systemd.Stopping("completing the requests in flight") })
	cfg.Version = versionName()
	if cfg.JWTs, err = newVerifier(ctx, o.oidc, cfg.Log); err != nil {
		return err
	}
	cfg.BaseURL = cmp.Or(cfg.BaseURL, o.tls.baseURL(cfg.Listen))
	if cfg.Tracer, err = telemetry.NewTracer(ctx, cfg.Version, cfg.Log); err != nil {
		return usageError{err}
	}
	cfg.Log.Info("settings", settings...)
	st, err := env.openStorage(ctx, *o.db, serves, o.unsafe)
	if err != nil {
		return ignoreStop(ctx, cfg.Log, err)
	}
	if from, to := st.Migrated(); 0 < from && from < to {
		cfg.Log.Info("the schema of the database was migrated", "from", from, "to", to)
	}
	if !isURL(*o.db) {
		if sqlite.InMemory(*o.db) {
			cfg.Log.Warn("the database is on an in-memory file system: a power loss or reboot loses every plant", "db", *o.db)
		}
		sqlite.Restrict(*o.db, cfg.Log.Warn)
	}
	log.SetOutput(io.Discard) // net/http writes there what receivers of webhooks send without a request
	return errors.Join(ignoreStop(ctx, cfg.Log, server.Run(ctx, cfg, st)), st.Close())
}

func (o *serveOptions) declare(f *flags) {
	o.db = f.database()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "`address` of the service")
	f.StringVar(&o.OpsListen, "ops-listen", "127.0.0.1:8081",
		"`address` of /livez, /readyz, /metrics and\n/debug/pprof/, or off")
	f.StringVar(&o.BaseURL, "base-url", "",
		"public `URL`; its path is the prefix of every route\n"+
			"(default: the address of --listen, with localhost in place\nof 0.0.0.0 and [::])")
	f.DurationVar(&o.Drain, "drain", 10*time.Second, "time for requests in flight to complete\nafter a signal to stop")
	f.Int64Var(&o.MaxBody, "max-body", 64<<10, "largest request body in `bytes`")
	f.IntVar(&o.Commit.Queue, "queue", 4096,
		"maximum `number` of creates waiting for a commit,\nand of edits; others get 503")
	f.IntVar(&o.MaxConns, "max-conns", 0,
		"maximum `number` of open connections; 0 for 512 per processor\n(at most 4096), fewer if open files or memory "+
			"are limited")
	f.StringVar(&o.access, "access-log", "errors", "`requests` to log: errors (failed and slow ones),\nall or off")
	f.StringVar(&o.cors, "cors-origins", "*",
		"web `origins` that may use the API from a browser,\nseparated by commas, or * or off")
	o.rate, o.burst = f.rate("default-rate", "default-burst", "of tokens issued without one", "no limit")
	f.StringVar(&o.proxies, "trusted-proxies", "",
		"`addresses` and networks, separated by commas,\nwhose X-Forwarded-For is trusted")
	f.BoolVar(&o.unsafe, "unsafe-durability", false, "accept a PostgreSQL server that can lose\nconfirmed plants")
	f.BoolVar(&o.sandbox, "sandbox", false, "let anyone create a sandbox: a store of their own that expires")
	f.IntVar(&o.Sandbox.Max, "max-sandboxes", 1000, "maximum `number` of sandboxes, with --sandbox")
	f.StringVar(&o.sandboxRate, "sandbox-rate", "60/m", "`rate` of new sandboxes from one address, with --sandbox")
	f.StringVar(&o.targets, "webhook-targets", "public",
		"`addresses` that webhooks are sent to: public, private (also\nloopback and private networks), or networks, "+
			"separated by\ncommas")
	f.StringVar(&o.proxy, "webhook-proxy", "",
		"`URL` of a proxy for webhooks, which then decides\nwhat they may reach")
	f.StringVar(&o.tokenFile, "token-file", "", "`path` of a file with one fixed token,\ninstead of "+fixedTokenVariable)
	f.variable("token-file", fixedTokenVariable+"_FILE")
	o.tls.declare(f)
	f.oidc(&o.oidc)
	f.VisitAll(f.sameVariable)
}

func (o *serveOptions) config(env environment) (server.Config, error) {
	cfg := o.Config
	var errs [8]error
	cfg.AccessLog, errs[0] = httpapi.ParseAccessLog(o.access)
	cfg.Origins, errs[1] = httpapi.ParseOrigins(o.cors)
	cfg.Proxies, errs[2] = httpapi.ParseProxies(o.proxies)
	cfg.Rate, errs[3] = rate.Parse(*o.rate, *o.burst)
	errs[4] = server.CheckBaseURL(cfg.BaseURL)
	cfg.Sandbox.Rate, errs[5] = parseSandboxRate(o.sandboxRate)
	cfg.Webhook.Targets, errs[6] = webhook.ParseTargets(o.targets)
	cfg.Webhook.Proxy, errs[7] = webhook.ParseProxy(o.proxy)
	if !o.sandbox {
		cfg.Sandbox = sandbox.Config{}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return cfg, usageError{err}
	}
	err := cmp.Or(o.checkLimits(cfg), checkDatabase("--db", *o.db), checkAddress("--listen", cfg.Listen))
	if cfg.OpsListen != "off" {
		err = cmp.Or(err, checkAddress("--ops-listen", cfg.OpsListen))
	}
	if err != nil {
		return cfg, err
	}
	cfg.Token, cfg.TokenFrom = env.variables[fixedTokenVariable], fixedTokenVariable
	if o.tokenFile != "" {
		cfg.TokenFrom = o.tokenFile
		if cfg.Token, err = readSecret(o.tokenFile); err != nil {
			return cfg, fmt.Errorf("--token-file: %w", err)
		}
	}
	cfg.Public, cfg.Ops, err = systemd.Sockets()
	return cfg, err
}

// parseSandboxRate reads --sandbox-rate. The burst is the whole rate: a job may start with as many sandboxes at once.
func parseSandboxRate(text string) (rate.Limit, error) {
	l, err := rate.Parse(text, 0)
	if l.Burst = l.Count; err != nil {
		err = fmt.Errorf("--sandbox-rate: %w", err)
	}
	return l, err
}

func (o *serveOptions) checkLimits(cfg server.Config) error {
	const maxBody, maxConns = 64 << 20, 1_000_000
	switch {
	case cfg.MaxBody < 1 || cfg.MaxBody > maxBody:
		return usagef("--max-body is %d: use 1 to %d", cfg.MaxBody, maxBody)
	case cfg.Commit.Queue < 1:
		return usagef("--queue is %d: use 1 or more", cfg.Commit.Queue)
	case cfg.MaxConns < 0 || cfg.MaxConns > maxConns:
		return usagef("--max-conns is %d: use 0 to %d", cfg.MaxConns, maxConns)
	case o.Sandbox.Max < 1:
		return usagef("--max-sandboxes is %d: use 1 or more", o.Sandbox.Max)
	case cfg.Drain < 0:
		return usagef("--drain is %v: use 0 or more", cfg.Drain)
	}
	return nil
}

func checkAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usagef("%s is %q: use an address such as 127.0.0.1:8080", flag, address)
	}
	return nil
}

// ignoreStop returns nil if a start failed only because the signal to stop arrived before it was complete.
// No request was accepted yet, so none was interrupted.
func ignoreStop(ctx context.Context, log *slog.Logger, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped", "reason", context.Cause(ctx).Error()+" before the service was ready")
	return nil
}

func (f *flags) oidc(o *oidc.Config) {
	f.StringVar(&o.Issuer, "oidc-issuer", "",
		"`URL` of an OpenID Connect identity provider whose tokens (JWTs)\nare accepted too")
	f.StringVar(&o.Audience, "oidc-audience", "", "`name` of this service in the claim aud of its tokens")
	f.StringVar(&o.ScopeClaim, "oidc-scope-claim", "scope", "`claim` with the scopes of its tokens")
	f.StringVar(&o.StoreClaim, "oidc-store-claim", "",
		"`claim` with the store of its tokens\n(default: the store "+token.DefaultStore+")")
}

// newVerifier returns the verifier of JWTs, or nil without --oidc-issuer. Until ctx ends, its keys are kept up to date.
func newVerifier(ctx context.Context, o oidc.Config, log *slog.Logger) (token.Verifier, error) {
	if o.Issuer == "" && o.Audience == "" && o.StoreClaim == "" {
		return nil, nil
	}
	if o.Issuer == "" || o.Audience == "" {
		return nil, usagef("--oidc-issuer and --oidc-audience must be set together")
	}
	o.Log = log
	v, err := oidc.New(o)
	if err != nil {
		return nil, usagef("--oidc-issuer %w", err)
	}
	go v.Run(ctx)
	return v, nil
}
