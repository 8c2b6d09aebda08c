// Command variant serves the product's HTTP stack on something other than its group commit, for
// comparison, or with a slower disk, or under a profiler.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/server"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/sqlite"
	"plantstore/internal/telemetry"
)

func main() {
	kind := flag.String("kind", "product", "none: keep nothing; single: one transaction for each request; product: as it is")
	db := flag.String("db", "plantstore.db", "the database: a file, or a postgres:// URL")
	slower := flag.Duration("slower", 0, "how much longer every commit of the product takes")
	profile := flag.String("cpuprofile", "", "file for a CPU profile of the whole run")
	flag.Parse()
	if err := run(*kind, *db, *slower, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "variant:", err)
		os.Exit(1)
	}
}

func run(kind, db string, slower time.Duration, profile string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	st, err := open(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
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
	cfg := server.Config{
		Listen: "127.0.0.1:0", OpsListen: "off", Drain: 10 * time.Second,
		Config: httpapi.Config{MaxBody: 64 << 10}, Out: os.Stdout, Log: telemetry.NewLogger(os.Stderr),
	}
	switch kind {
	case "none":
		cfg.Creator = none{}
	case "single":
		cfg.Creator = single{st}
	case "product":
	default:
		return fmt.Errorf("there is no kind %q", kind)
	}
	return server.Run(ctx, cfg, slow{st, slower})
}

func open(ctx context.Context, db string) (store.Store, error) {
	if postgres.IsURL(db) {
		return postgres.Open(ctx, db, postgres.Options{})
	}
	return sqlite.Open(ctx, db)
}

// none answers without a hand-over and without a store.
type none struct{}

func (none) Create(context.Context, plant.Record) (plant.Outcome, error) { return plant.Created, nil }

// single commits every plant by itself.
type single struct{ store store.Plants }

func (s single) Create(ctx context.Context, record plant.Record) (plant.Outcome, error) {
	outcomes, err := s.store.CreateBatch(ctx, []plant.Record{record})
	if err != nil {
		return 0, err
	}
	return outcomes[0], nil
}

// slow is a store on a slower disk.
type slow struct {
	store.Store
	by time.Duration
}

func (s slow) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	outcomes, err := s.Store.CreateBatch(ctx, plants)
	if s.by > 0 {
		time.Sleep(s.by)
	}
	return outcomes, err
}
