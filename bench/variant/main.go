// Command variant serves the product's HTTP stack without its group commit, or a handler of the standard library, for
// comparison; or the product with slower commits or under a profiler.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/listen"
	"plantstore/internal/machine"
	"plantstore/internal/plant"
	"plantstore/internal/server"
	"plantstore/internal/storage"
	"plantstore/internal/storage/citus"
	"plantstore/internal/storage/postgres"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/telemetry"
	"plantstore/internal/token"
)

// Settings of the product.
const (
	maxBody   = 64 << 10
	timeout   = 30 * time.Second
	gcPercent = 400
)

func main() {
	kind := flag.String("kind", "product",
		"none: store nothing; single: one transaction for each request; product: group commit; "+
			"bare: a handler of the standard library that stores nothing")
	token := flag.String("token", "", "the bearer token that --kind bare accepts")
	db := flag.String("db", "plantstore.db", "the database: a file, or a postgres:// URL")
	slower := flag.Duration("slower", 0, "delay of every commit of the product")
	profile := flag.String("cpuprofile", "", "file for a CPU profile of the whole run")
	flag.Parse()
	if err := run(*kind, *token, *db, *slower, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "variant:", err)
		os.Exit(1)
	}
}

func run(kind, token, db string, slower time.Duration, profile string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if kind == "bare" {
		return serveBare(ctx, token)
	}
	st, err := open(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	log := telemetry.NewLogger(os.Stderr)
	switch kind {
	case "none":
		return serve(ctx, none, st, log)
	case "single":
		return serve(ctx, single(st.CreateBatch), st, log)
	case "product":
		return server.Run(ctx, server.Config{
			Listen: "127.0.0.1:0", OpsListen: "off", Drain: 10 * time.Second,
			Config: httpapi.Config{MaxBody: maxBody}, Out: os.Stdout, Log: log,
		}, slow{st, slower})
	}
	return fmt.Errorf("unknown kind %q", kind)
}

// serve is server.Run without group commit, with the same settings.
func serve(ctx context.Context, create creator, st storage.Storage, log *slog.Logger) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	debug.SetGCPercent(gcPercent)
	conns := listen.New(l, listen.Config{
		Max: listen.DefaultMax(machine.Read()), Log: log.Info, Refusal: httpapi.Refusal,
		ErrorResponse: func(int, net.Addr) []byte { return nil },
	})
	fmt.Printf("Plant Store serves http://%s\n", l.Addr())
	service := &http.Server{
		ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout,
		Handler: httpapi.New(httpapi.Config{MaxBody: maxBody}, httpapi.Dependencies{
			Auth: token.NewAuthenticator(st, nil, nil), Create: create, Edit: single(st.EditBatch),
			Reader: st, Connections: conns, Log: log,
		}),
	}
	context.AfterFunc(ctx, func() { service.Close() })
	if err := conns.Serve(service); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func open(ctx context.Context, db string) (storage.Storage, error) {
	if postgres.IsURL(db) {
		return citus.Open(ctx, db, postgres.Options{})
	}
	return sqlite.Open(ctx, db)
}

type creator = func(context.Context, plant.Record) (plant.Outcome, error)

// none stores nothing and returns at once.
func none(context.Context, plant.Record) (plant.Outcome, error) { return plant.Created, nil }

// single commits every plant in its own transaction.
func single[T any](
	commit func(context.Context, []T) ([]plant.Outcome, error),
) func(context.Context, T) (plant.Outcome, error) {
	return func(ctx context.Context, write T) (plant.Outcome, error) {
		outcomes, err := commit(ctx, []T{write})
		if err != nil {
			return 0, err
		}
		return outcomes[0], nil
	}
}

// slow is a storage on a slower disk.
type slow struct {
	storage.Storage
	by time.Duration
}

func (s slow) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	outcomes, err := s.Storage.CreateBatch(ctx, plants)
	time.Sleep(s.by)
	return outcomes, err
}

func (s slow) EditBatch(ctx context.Context, edits []plant.Edit) ([]plant.Outcome, error) {
	outcomes, err := s.Storage.EditBatch(ctx, edits)
	time.Sleep(s.by)
	return outcomes, err
}
