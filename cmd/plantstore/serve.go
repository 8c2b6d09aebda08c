package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/netlimit"
	"plantstore/internal/rate"
	"plantstore/internal/server"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/telemetry"
)

const aboutServe = `Serves the API until SIGINT, SIGTERM or SIGHUP, then completes the requests in flight.
A second SIGINT or SIGTERM stops it immediately.
PLANTSTORE_FIXED_TOKEN or --token-file sets one fixed token.
Sockets passed by systemd (LISTEN_FDS) replace --listen and --ops-listen.`

// Names of variables. The client's own are never the fixed token of a service: a shell that exports a token for
// reading would give it every scope.
const (
	fixedTokenVariable = "PLANTSTORE_FIXED_TOKEN"
	fixedFileVariable  = "PLANTSTORE_FIXED_TOKEN_FILE"
)

func serve(ctx context.Context, env environment, args []string) error {
	cfg, db, unsafe, err := serveConfig(env, args)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	started := make(chan struct{})
	cfg.Out, cfg.Log, cfg.Started = env.stdout, telemetry.NewLogger(env.stderr), func() { close(started) }
	warnAboutToken(env.getenv, cfg)
	return endHungStart(ctx, started, func() error { return openAndServe(ctx, env, cfg, db, unsafe) })
}

func openAndServe(ctx context.Context, env environment, cfg server.Config, db string, unsafe bool) error {
	st, err := env.openStore(ctx, db, unsafe)
	if err != nil {
		return ignoreStop(ctx, cfg.Log, err)
	}
	if !isURL(db) {
		warnAboutFile(cfg.Log, db)
	}
	return errors.Join(ignoreStop(ctx, cfg.Log, server.Run(ctx, cfg, st)), st.Close())
}

// warnAboutToken logs that the variables of clients are ignored. Earlier versions read them.
func warnAboutToken(getenv func(string) string, cfg server.Config) {
	for _, variable := range []string{"PLANTSTORE_TOKEN", "PLANTSTORE_TOKEN_FILE"} {
		if cfg.Token == "" && getenv(variable) != "" {
			cfg.Log.Warn(variable + " is for clients and is ignored by serve; to set a fixed token, use " +
				strings.Replace(variable, "_TOKEN", "_FIXED_TOKEN", 1))
		}
	}
}

// warnAboutFile logs what an operator should know about a SQLite file, and restricts its mode to its owner.
func warnAboutFile(log *slog.Logger, db string) {
	if sqlite.InMemory(db) {
		log.Warn("the database is on an in-memory file system: a power loss or reboot loses every plant", "db", db)
	}
	sqlite.Restrict(db, log.Warn)
}

// serveConfig parses the flags of serve.
func serveConfig(env environment, args []string) (cfg server.Config, db string, unsafe bool, err error) {
	f := newFlags(env, "serve", "[flags]", aboutServe)
	database := f.database()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "`address` of the service")
	f.StringVar(&cfg.OpsListen, "ops-listen", "127.0.0.1:8081", "`address` of /livez and /readyz, or off")
	f.StringVar(&cfg.BaseURL, "base-url", "",
		"public `URL`; its path is the prefix of every route (default: http:// and the address)")
	f.DurationVar(&cfg.Drain, "drain", 10*time.Second, "time for requests in flight to complete after a signal to stop")
	f.Int64Var(&cfg.MaxBody, "max-body", 64<<10, "largest request body in `bytes`")
	f.IntVar(&cfg.Commit.Queue, "queue", 4096, "maximum number of creates waiting for a commit; others get 503")
	f.IntVar(&cfg.MaxConns, "max-conns", 0,
		"maximum number of open connections; at the limit, a new one replaces one that waits for its client, or gets 503; "+
			"0 for 512 per processor (at most 4096), fewer if open files or memory are limited")
	f.IntVar(&cfg.PerAddr, "conns-per-address", 0,
		"connections without a valid token that one address (IPv6: a /64 network) keeps when all connections are in use; "+
			"0 for a sixteenth of --max-conns; does not apply to --trusted-proxies")
	access := f.String("access-log", "errors", "`requests` to log: errors (failed and slow ones), all or off")
	cors := f.String("cors-origins", "*",
		"web `origins` that may use the API from a browser, separated by commas, or * or off")
	limit, burst := f.rate("default-rate", "default-burst", "of tokens issued without one", "no limit")
	proxies := f.String("trusted-proxies", "",
		"`addresses` and networks, separated by commas, whose X-Forwarded-For is trusted")
	unsafeDurability := f.Bool("unsafe-durability", false, "accept a PostgreSQL server that can lose confirmed plants")
	f.rename["token-file"] = fixedFileVariable
	tokenFile := f.String("token-file", "", "`path` of a file with one fixed token, instead of "+fixedTokenVariable)
	if _, err := f.parse(args); err != nil {
		return cfg, "", false, err
	}
	var errs [4]error
	cfg.AccessLog, errs[0] = httpapi.ParseAccessLog(*access)
	cfg.Origins, errs[1] = httpapi.ParseOrigins(*cors)
	cfg.Proxies, errs[2] = httpapi.ParseProxies(*proxies)
	cfg.Rate, errs[3] = rate.Parse(*limit, *burst)
	if err := errors.Join(errs[:]...); err != nil {
		return cfg, "", false, f.usageError("%v", err)
	}
	if err := checkLimits(f, cfg); err != nil {
		return cfg, "", false, err
	}
	if cfg.Token, cfg.TokenFrom, err = f.secret(fixedTokenVariable, *tokenFile); err != nil {
		return cfg, "", false, err
	}
	cfg.Public, cfg.Ops, err = netlimit.Inherit(env.getenv)
	return cfg, *database, *unsafeDurability, err
}

func checkLimits(f *flags, cfg server.Config) error {
	const maxBody, maxConns = 64 << 20, 1_000_000
	switch {
	case cfg.MaxBody < 1 || cfg.MaxBody > maxBody:
		return f.usageError("--max-body is %d: use 1 to %d", cfg.MaxBody, maxBody)
	case cfg.Commit.Queue < 1:
		return f.usageError("--queue is %d: use 1 or more", cfg.Commit.Queue)
	case cfg.MaxConns < 0 || cfg.MaxConns > maxConns:
		return f.usageError("--max-conns is %d: use 0 to %d", cfg.MaxConns, maxConns)
	case cfg.PerAddr < 0 || cfg.PerAddr > maxConns || cfg.MaxConns > 0 && cfg.PerAddr > cfg.MaxConns:
		return f.usageError("--conns-per-address is %d: use 0 to %d", cfg.PerAddr, cmp.Or(cfg.MaxConns, maxConns))
	case cfg.Listen == "":
		return f.usageError("--listen is empty: use an address such as 127.0.0.1:8080")
	case cfg.OpsListen == "":
		return f.usageError("--ops-listen is empty: use an address such as 127.0.0.1:8081, or off")
	case cfg.Drain < 0:
		return f.usageError("--drain is %v: use 0 or more", cfg.Drain)
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
