package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

const maxWorkers = 3

// cluster is a Citus cluster on this machine: a coordinator and workers. Every row has its own database on it; the
// row for plain PostgreSQL has one on the coordinator, without the extension.
type cluster struct {
	nodes []*postgres // the coordinator is the first
	dbs   map[string]citusDB
}

type citusDB struct{ name, token string }

// onCitus runs the rows that need a cluster, or marks them as skipped.
func (b *bench) onCitus(part section) error {
	b.progress.say("%d/%d starting Citus", b.done, b.planned)
	c := &cluster{dbs: map[string]citusDB{}}
	b.cluster = c
	defer c.stop()
	err := c.start(b.ctx, b.dir)
	for _, r := range part.rows {
		if err == nil {
			err = c.prepare(b.ctx, b.bin("plantstore"), r)
		}
	}
	if err := part.skip("Citus", err, func(*row) bool { return true }); err != nil {
		return err
	}
	return b.rows(part)
}

func (c *cluster) start(ctx context.Context, dir string) error {
	for i := range maxWorkers + 1 {
		pg := &postgres{dir: filepath.Join(dir, fmt.Sprint("citus", i))}
		if err := pg.find(); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(pg.bin, "../lib/citus.so")); err != nil {
			return unavailable("Citus is not installed")
		}
		port, err := freePort()
		if err != nil {
			return err
		}
		pg.port = port
		c.nodes = append(c.nodes, pg)
		if err := pg.start(ctx, "listen_addresses=127.0.0.1", "shared_preload_libraries=citus",
			"citus.node_conninfo=sslmode=disable", "max_worker_processes=32"); err != nil {
			return err
		}
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (c *cluster) stop() {
	for _, pg := range c.nodes {
		if pg.server != nil {
			pg.server.stop(syscall.SIGINT)
		}
	}
}

func (c *cluster) coordinator() *postgres { return c.nodes[0] }

// storedBefore is how many plants the database of a row has before the row runs, which only reads them.
func (r *row) storedBefore() int64 {
	switch {
	case r.kind == walk:
		return walked
	case r.store != nil:
		return r.store.plants
	}
	return 0
}

// prepare creates the database of a row, with a token and perhaps with plants.
func (c *cluster) prepare(ctx context.Context, program string, r *row) error {
	db := citusDB{name: strings.ReplaceAll(r.Key, "-", "_")}
	join := ""
	for i, pg := range c.nodes[:r.workers+1] {
		if _, err := pg.query(ctx, "postgres", "CREATE DATABASE "+db.name); err != nil {
			return err
		}
		if r.workers == 0 {
			break
		}
		if _, err := pg.query(ctx, db.name, "CREATE EXTENSION citus"); err != nil {
			return err
		}
		add := "SELECT citus_add_node('127.0.0.1', %d);"
		if i == 0 {
			add = "SELECT citus_set_coordinator_host('127.0.0.1', %d);"
		}
		join += fmt.Sprintf(add, pg.port)
	}
	coordinator := c.coordinator()
	url := coordinator.url(db.name)
	if r.workers > 0 {
		if _, err := coordinator.query(ctx, db.name, join); err != nil {
			return err
		}
		if _, err := command(ctx, nil, nil, program, "db", "distribute", "--by", r.by, "--db", url); err != nil {
			return err
		}
	}
	issued, err := command(ctx, nil, nil, program, "token", "issue", "--name", "bench", "--db", url)
	if err != nil {
		return err
	}
	db.token = strings.TrimSpace(string(issued))
	if n := r.storedBefore(); n > 0 {
		fill := fmt.Sprintf("INSERT INTO plants SELECT 'main', g, '%s', '%s' FROM generate_series(1, %d) g",
			measure.Name(10), measure.Tag, n)
		for _, sql := range []string{fill, "VACUUM ANALYZE plants"} {
			if _, err := coordinator.query(ctx, db.name, sql); err != nil {
				return err
			}
		}
	}
	c.dbs[r.Key] = db
	return nil
}

// contender prepares the service on the database of a row, which it empties afterwards.
func (c *cluster) contender(ctx context.Context, program string, r *row) *contender {
	db, pg := c.dbs[r.Key], c.coordinator()
	return &contender{
		program: program, args: serveArgs(pg.url(db.name)), api: productAPI, token: db.token,
		clean: func() {
			if r.storedBefore() == 0 {
				pg.query(ctx, db.name, "TRUNCATE plants")
			}
		},
		verify: func(ctx context.Context, report measure.Report) error {
			if r.storedBefore() > 0 {
				return nil
			}
			return r.checkStored(report, 0, pg.countIn(ctx, db.name))
		},
	}
}

const walked = 100_000 // plants

var nextPage = regexp.MustCompile(`<([^>]*)>; rel="next"`)

// walk reads all plants of a store, page after page with one client. The rate is in plants/s.
func (b *bench) walk(r *row) (s sample, err error) {
	c := b.cluster.contender(b.ctx, b.bin("plantstore"), r)
	p, err := start(b.ctx, nil, c.program, c.args...)
	if err != nil {
		return s, err
	}
	defer p.stop(syscall.SIGTERM)
	read := func() (plants int, err error) {
		for path := "/plants?limit=1000"; path != ""; {
			header, body, err := p.fetch(b.ctx, c.token, path)
			if err != nil {
				return plants, err
			}
			plants += strings.Count(string(body), `"id"`)
			path = ""
			if next := nextPage.FindStringSubmatch(header.Get("Link")); next != nil {
				path = next[1]
			}
		}
		return plants, nil
	}
	if _, err := read(); err != nil { // the first time fills caches
		return s, err
	}
	before, err := measure.Usage(p.pid())
	if err != nil {
		return s, err
	}
	began := time.Now()
	plants, err := read()
	if err != nil {
		return s, err
	}
	took := time.Since(began)
	after, err := measure.Usage(p.pid())
	if err != nil {
		return s, err
	}
	if plants != walked {
		return s, fault(fmt.Sprintf("the lists contain %d of %d plants", plants, walked))
	}
	return sample{
		Rate: float64(plants) / took.Seconds(), CPU: micros(after.CPU-before.CPU) / walked,
		RSSStart: mebi(before.RSS), RSS: mebi(after.RSS), Peak: mebi(after.Peak),
	}, nil
}

// pids are those of the servers of a row, the coordinator first.
func (c *cluster) pids(r *row) (pids []string) {
	for _, pg := range c.nodes[:r.workers+1] {
		pids = append(pids, strconv.Itoa(pg.server.pid()))
	}
	return pids
}
