package main

import (
	"context"
	"errors"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/httpapi"
	"plantstore/internal/rate"
	"plantstore/internal/server"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/telemetry"
)

func serve(ctx context.Context, env environment, args []string) error {
	f := newFlags(env, "serve", "[flags]", "Serves the API until SIGINT or SIGTERM; then answers what is under way. A second signal ends it at once.\nPLANTSTORE_TOKEN gives it one fixed token. Sockets that systemd passes on (LISTEN_FDS) come before --listen and --ops-listen.")
	db := f.database()
	listen := f.String("listen", "127.0.0.1:8080", "`address` of the service")
	opsListen := f.String("ops-listen", "127.0.0.1:8081", "`address` of /livez and /readyz, or off")
	baseURL := f.String("base-url", "", "public `url`; its path is the prefix under which the API is mounted (default http:// and the address)")
	drain := f.Duration("drain", 10*time.Second, "how long requests under way may take after the signal to stop")
	maxBody := f.Int64("max-body", 64<<10, "`bytes` of a request body at most")
	queue := f.Int("queue", 4096, "creates that may wait for a commit at most; more are answered 503")
	maxConns := f.Int("max-conns", 0, "connections at once at most; more make idle ones give way, or are answered 503; 0 is 512 for each processor, or what the limits on files and memory allow")
	access := f.String("access-log", "errors", "`which` requests to log: errors (failures and slow ones), all or off")
	cors := f.String("cors-origins", "*", "web `origins` whose pages may use the API from a browser: *, off, or a list separated by commas")
	limit, burst := f.rate("default-rate", "default-burst", "of tokens that were issued without one", "no limit")
	proxies := f.String("trusted-proxies", "", "`addresses` and networks, separated by commas, whose X-Forwarded-For is believed")
	unsafe := f.Bool("unsafe-durability", false, "accept a PostgreSQL server that can lose what it has confirmed")
	tokenFile := f.String("token-file", "", "`path` of a file with one fixed token, in place of PLANTSTORE_TOKEN")
	if _, err := f.parse(args); err != nil {
		return err
	}
	accessLog, err := httpapi.ParseAccessLog(*access)
	origins, originsErr := httpapi.ParseOrigins(*cors)
	trusted, proxiesErr := httpapi.ParseProxies(*proxies)
	defaultRate, rateErr := rate.Parse(*limit, *burst)
	switch err = errors.Join(err, originsErr, proxiesErr, rateErr); {
	case err != nil:
		return f.wrong("%v", err)
	case *maxBody < 1 || *maxBody > 64<<20:
		return f.wrong("--max-body is %d: expected 1 to %d", *maxBody, 64<<20)
	case *queue < 1:
		return f.wrong("--queue is %d: expected 1 or more", *queue)
	case *maxConns < 0 || *maxConns > 1_000_000:
		return f.wrong("--max-conns is %d: expected 0 to 1000000", *maxConns)
	case *listen == "" || *opsListen == "":
		return f.wrong("--listen or --ops-listen is empty: expected an address such as 127.0.0.1:8080, for --ops-listen also off")
	case *drain < 0:
		return f.wrong("--drain is %v: expected 0 or more", *drain)
	}
	fixed, err := f.secret("PLANTSTORE_TOKEN", *tokenFile)
	if err != nil {
		return err
	}
	public, ops, err := server.Inherit(env.getenv)
	if err != nil {
		return err
	}

	signal.Ignore(syscall.SIGPIPE) // who reads the log may go away; the service stays
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from the first signal on, the next one ends the process
	log := telemetry.NewLogger(env.stderr)
	st, err := openStore(ctx, *db, *unsafe)
	if err != nil {
		return unlessStopped(ctx, log, err)
	}
	if !isURL(*db) && sqlite.InMemory(*db) {
		log.Warn("the database is on a file system in memory: a power loss or restart of the machine loses every plant", "db", *db)
	}
	err = server.Run(ctx, server.Config{
		Listen: *listen, OpsListen: *opsListen, Public: public, Ops: ops, BaseURL: *baseURL, Drain: *drain, MaxBody: *maxBody, MaxConns: *maxConns, Token: fixed,
		AccessLog: accessLog, Rate: defaultRate, Proxies: trusted, Origins: origins, Commit: commit.Options{Queue: *queue}, Out: env.stdout, Log: log,
	}, st)
	return errors.Join(unlessStopped(ctx, log, err), st.Close())
}

// unlessStopped is no error where a start failed only because the signal to stop came in the midst of it: nobody was
// served yet, so nothing was cut off.
func unlessStopped(ctx context.Context, log *slog.Logger, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped", "reason", "the signal came before the service was up")
	return nil
}
