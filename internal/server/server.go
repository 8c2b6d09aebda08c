// Package server wires the packages into a running service and shuts it down in the reverse order.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"plantstore/api"
	"plantstore/internal/commit"
	"plantstore/internal/console"
	"plantstore/internal/httpapi"
	"plantstore/internal/listen"
	"plantstore/internal/machine"
	"plantstore/internal/plant"
	"plantstore/internal/sandbox"
	"plantstore/internal/storage"
	"plantstore/internal/telemetry"
	"plantstore/internal/token"
	"plantstore/internal/webhook"
)

// Config is what an operator sets. Zero values are not defaults: the command line has those.
type Config struct {
	Listen    string         // address of the service
	OpsListen string         // address of health, metrics and profiles; "off" for none
	BaseURL   string         // public address; its path is the prefix of the API; "" for that of Listen
	Drain     time.Duration  // how long requests in flight may take after the signal to stop
	MaxConns  int            // open connections; 0 for what the machine allows
	Token     string         // one fixed credential with every scope on the store "main"; "" for none
	TokenFrom string         // the file or variable that Token is from, for the log
	JWTs      token.Verifier // of tokens of an identity provider; nil for none
	Version   string         // of the program, for metrics and the log
	Sandbox   sandbox.Config // zero: nobody can create one
	Webhook   webhook.Config
	Commit    commit.Options
	httpapi.Config
	TLS               *tls.Config      // of the service; nil for plain HTTP
	CertificateExpiry func() time.Time // of TLS; the zero time without a certificate

	Public, Ops net.Listener // used in place of the addresses if not nil; see systemd.Sockets

	Tracer *telemetry.Tracer // nil for no traces; closed by Run

	Started func(address string) // called when the service accepts requests, with its public address; may be nil

	Out io.Writer // gets the address, a first token and an example; nil for none of them
	Log *slog.Logger
}

const (
	// One duration for all phases of reading lets a busy connection set one timer a second: see listen.
	readTimeout  = 30 * time.Second
	writeTimeout = 60 * time.Second
	maxHeader    = 32 << 10

	// More batches of edits in flight would make no more edits, and leave fewer connections for reads.
	maxEditLanes = 2
)

// Run serves st until ctx ends, then waits for requests in flight and returns. The caller closes st afterwards.
func Run(ctx context.Context, cfg Config, st storage.Storage) error {
	s := &service{cfg: cfg, storage: st, failed: make(chan error, 2)}
	defer s.close()
	if err := s.start(ctx); err != nil {
		return err
	}
	if cfg.Started != nil {
		cfg.Started(s.address)
	}
	select {
	case err := <-s.failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		return s.drain(ctx)
	}
}

type service struct {
	cfg     Config
	storage storage.Storage
	address string // public
	metrics *telemetry.Metrics
	health  *telemetry.Health
	conns   *listen.Listener
	log     *slog.Logger // for records that clients can cause
	creates *commit.Committer[plant.Record]
	edits   *commit.Committer[plant.Edit]
	boxes   *sandbox.Sandboxes // nil on a cluster
	hooks   *webhook.Webhooks  // nil on a cluster

	cleanup    []func()       // called in reverse order
	background sync.WaitGroup // goroutines that end after cleanup
	failed     chan error     // of servers
}

func (s *service) start(ctx context.Context) error {
	s.cfg.Log = s.cfg.Tracer.Logger(s.cfg.Log)
	if s.log = s.cfg.Log; s.cfg.AccessLog != httpapi.LogAll { // bounds the records that clients can cause
		s.log = slog.New(telemetry.NewRepeats(s.log.Handler()))
	}
	public, err := openListener(s.cfg.Public, "--listen", s.cfg.Listen)
	if err != nil {
		return err
	}
	limits := machine.Read()
	if s.cfg.MaxConns == 0 {
		s.cfg.MaxConns = listen.DefaultMax(limits)
	}
	s.metrics = telemetry.NewMetrics(s.cfg.Version, s.sample)
	s.observeCheckpoints()
	s.conns = s.limit(public, listen.Config{
		Max: s.cfg.MaxConns, Setting: "--max-conns", Exempt: s.cfg.Proxies.Trusts, TLS: s.cfg.TLS,
	}, s.metrics)
	base, err := baseURL(s.cfg.BaseURL, public.Addr(), s.cfg.TLS != nil)
	if err != nil {
		return err
	}
	s.address = base.String()
	fixed, err := fixedToken(s.cfg)
	if err != nil {
		return err
	}
	bodies := maxBodies(limits.Memory, s.cfg.MaxBody)
	tuneCollector(limits.Memory, bodies, s.cfg.MaxConns)
	tuneScheduler(s.storage.Stats().Engine)
	s.startCommitters(ctx)
	if err := s.startFeatures(ctx); err != nil {
		return err
	}
	deps := httpapi.Dependencies{
		Auth:        s.startAuthenticator(ctx, fixed),
		Create:      s.creates.Commit,
		Edit:        s.edits.Commit,
		Reader:      s.storage,
		Connections: s.conns,
		Log:         s.log,
		Observe: func(r httpapi.Request) {
			s.metrics.Request(r.Route, r.Method, r.Status, r.Number, r.Injected, r.Took)
			s.cfg.Tracer.Request(r.Context, r.Route, r.Method, r.Status, r.Number)
		},
		Mask:      token.NewMask(s.cfg.Token),
		Prefix:    base.Path,
		Queue:     s.creates.Queue(),
		MaxMemory: bodies,
		Pages:     s.pages(base.Path),
		Stopping:  ctx.Done(),
	}
	if s.hooks != nil {
		deps.Webhooks, deps.Create = s.hooks, s.hooks.Creates(deps.Create)
	}
	if s.cfg.Sandbox.Max > 0 {
		deps.Sandbox, deps.Create, deps.Edit = s.boxes, s.boxes.Creates(deps.Create), s.boxes.Edits(deps.Edit)
	}
	if err := s.startOps(); err != nil {
		return err
	}
	if err := welcome(ctx, s.cfg, s.storage, base, fixed != nil); err != nil {
		return err
	}
	s.serve(s.conns, s.cfg.Tracer.Handler(httpapi.New(s.cfg.Config, deps)))
	database := s.storage.Stats()
	s.cfg.Log.Info("serving", "address", s.address, "listening", hostPort(public.Addr(), ""), "version", s.cfg.Version,
		"engine", database.Engine, "schema", database.Schema, "max_conns", s.cfg.MaxConns, "memory_for_bodies", bodies)
	s.run(ctx, s.health.Watch)
	return nil
}

// run calls do in the background. Its context ends with ctx, and when the service closes.
func (s *service) run(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	s.cleanup = append(s.cleanup, cancel)
	s.background.Go(func() { do(ctx) })
}

// pages returns the console, the description, and /healthz for a container that publishes one port. It does not check
// the database.
func (s *service) pages(prefix string) map[string]http.Handler {
	sandbox := s.cfg.Sandbox.Max > 0
	pages := console.Routes(prefix, sandbox)
	for _, format := range []string{"json", "yaml"} {
		text := api.Description(format, s.address, sandbox)
		pages["GET "+prefix+"/openapi."+format] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/"+format)
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			w.Write(text)
		})
	}
	pages["GET "+prefix+"/healthz"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if s.conns.Draining() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "ok\n")
	})
	return pages
}

// startCommitters starts group commit of creates and of edits. They outlive ctx: requests in flight at the signal to
// stop are still committed.
func (s *service) startCommitters(ctx context.Context) {
	options := s.cfg.Commit
	options.Lanes, options.ObserveWait = s.storage.Lanes(), observeWaits(s.cfg.Tracer)
	shardOf := func(r *plant.Record) (server, shard int) { return s.storage.Shard(r.Key()) }
	options.Observe = observeCommits(s.metrics, "create")
	s.creates = commit.New(s.storage.CreateBatch, shardOf, options)
	shardOfEdit := func(e *plant.Edit) (server, shard int) { return s.storage.Shard(e.Key) }
	options.Observe, options.Lanes = observeCommits(s.metrics, "edit"), min(options.Lanes, maxEditLanes)
	s.edits = commit.New(s.storage.EditBatch, shardOfEdit, options)
	s.run(context.WithoutCancel(ctx), s.creates.Run)
	s.run(context.WithoutCancel(ctx), s.edits.Run)
}

// startFeatures starts sandboxes and webhooks, which a cluster does not have.
func (s *service) startFeatures(ctx context.Context) error {
	if s.storage.Stats().Nodes != nil {
		if s.cfg.Sandbox.Max > 0 {
			return errors.New("--sandbox needs SQLite or PostgreSQL: in a cluster, one node alone has the table of sandboxes")
		}
		return nil
	}
	s.boxes = sandbox.New(s.cfg.Sandbox, s.storage)
	s.run(ctx, func(ctx context.Context) { s.boxes.Run(ctx, s.cfg.Log) })
	s.hooks = webhook.New(s.cfg.Webhook, s.storage, s.cfg.Version, s.log, s.metrics.WebhookTry)
	if err := s.hooks.Refresh(ctx); err != nil { // creates need to know the endpoints
		return err
	}
	s.run(ctx, s.hooks.Run)
	return nil
}

// startAuthenticator starts recording the uses of tokens. It outlives ctx: uses by requests that are in flight at the
// signal to stop are recorded too.
func (s *service) startAuthenticator(ctx context.Context, fixed *token.Token) *token.Authenticator {
	var lookup token.Lookup = s.storage
	if s.cfg.Sandbox.Max > 0 {
		lookup = s.boxes
	}
	auth := token.NewAuthenticator(lookup, s.cfg.JWTs, fixed)
	s.run(context.WithoutCancel(ctx), func(ctx context.Context) { auth.RecordUses(ctx, s.storage, s.cfg.Log) })
	return auth
}

func (s *service) startOps() error {
	s.health = telemetry.NewHealth(s.storage.Check, s.cfg.Log)
	if s.cfg.OpsListen == "off" {
		return nil
	}
	l, err := openListener(s.cfg.Ops, "--ops-listen", s.cfg.OpsListen)
	if err != nil {
		return err
	}
	limited := s.limit(l, listen.Config{Max: listen.HealthMax(machine.Read().Files), Setting: "the ops port"}, nil)
	s.serve(limited, servePaths(s.opsPaths(), s.logRequest))
	s.cfg.Log.Info("ops port", "address", "http://"+hostPort(l.Addr(), "localhost"))
	return nil
}

// limit bounds the connections of l. Metrics may be nil.
func (s *service) limit(l net.Listener, cfg listen.Config, metrics *telemetry.Metrics) *listen.Listener {
	cfg.Log, cfg.Refusal = s.logRequest, httpapi.Refusal
	cfg.ErrorResponse = func(status int, client net.Addr) []byte {
		f, response := errorResponse(status, client, cfg.Log)
		if metrics != nil && response != nil {
			metrics.ProtocolError(f.Number)
		}
		return response
	}
	limited := listen.New(l, cfg)
	s.cleanup = append(s.cleanup, func() { limited.Close() })
	return limited
}

// logRequest logs a request that does not reach the API.
func (s *service) logRequest(message string, attrs ...any) {
	if s.cfg.AccessLog != httpapi.LogNone {
		s.log.Info(message, attrs...)
	}
}

func (s *service) serve(l *listen.Listener, h http.Handler) {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: readTimeout, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ErrorLog: log.New(logFunc(s.log.Warn), "", 0),
	}
	s.cleanup = append(s.cleanup, func() { server.Close() })
	s.background.Go(func() { s.failed <- l.Serve(server) })
}

func (s *service) drain(ctx context.Context) error {
	s.cfg.Log.Info("stopping", "drain", s.cfg.Drain.String(), "reason", context.Cause(ctx).Error())
	s.health.Stopping()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	if cut := s.conns.Drain(ctx); cut > 0 {
		return fmt.Errorf("stopped after %v; requests cut off: %d", s.cfg.Drain, cut)
	}
	s.cfg.Log.Info("stopped")
	return nil
}

// close ends everything that start has started, and waits for the commits, whose spans are the last that are sent. A
// read that the drain has cut off may still use the storage: an engine refuses it once it is closed.
func (s *service) close() {
	for i := range s.cleanup {
		s.cleanup[len(s.cleanup)-1-i]()
	}
	s.background.Wait()
	if err := s.cfg.Tracer.Close(); err != nil {
		s.cfg.Log.Warn("the last spans were not sent: the collector did not accept them in time", "reason", err.Error())
	}
}

// openListener opens the address of a flag unless a listener was inherited.
func openListener(inherited net.Listener, flag, address string) (net.Listener, error) {
	if inherited != nil {
		return inherited, nil
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %s: the port is in use by another program; choose another", flag, address)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err // the most specific of the chain
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return l, nil
}
