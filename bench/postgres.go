package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"plantstore/bench/measure"
	engine "plantstore/internal/storage/postgres"
)

// postgres is a private PostgreSQL server with its default settings, reachable only through a socket
// in a temporary folder.
type postgres struct {
	bin    string
	dir    string
	port   int
	as     *syscall.Credential // the server refuses to run as root
	server *process
	token  string // in the database "blank", whose tables the service has created
	loaded bool   // the database "loaded" is a copy of it with plants
	copies int
}

// unavailable is the reason that the PostgreSQL rows cannot be measured.
type unavailable string

func (u unavailable) Error() string { return string(u) }

// manyConnections allows the most that a row has, and a few for the harness.
const manyConnections = "max_connections=1100"

// onPostgres returns a function that calls run while a server runs. Rows that need it are skipped if it can't.
func onPostgres(run func(*bench, section) error, settings ...string) func(*bench, section) error {
	return func(b *bench, part section) error {
		if !slices.ContainsFunc(part.rows, needsPostgres) {
			return run(b, part)
		}
		b.progress.say("%d/%d starting PostgreSQL", b.done, b.planned)
		pg, err := startPostgres(b.ctx, b.dir, settings...)
		if err == nil {
			b.postgres = pg
			defer pg.server.stop(syscall.SIGINT)
			err = pg.blank(b.ctx, b.bin("plantstore"))
		}
		if err := part.skip("PostgreSQL", err, needsPostgres); err != nil {
			return err
		}
		return run(b, part)
	}
}

func needsPostgres(r *row) bool { return r.kind.onPostgres() }

// skip marks rows as skipped if a system is unavailable. It returns every other error.
func (part section) skip(system string, err error, needs func(*row) bool) error {
	var reason unavailable
	switch {
	case errors.As(err, &reason):
		for _, r := range part.rows {
			if needs(r) {
				r.skipped = reason.Error()
			}
		}
	case err != nil:
		return fmt.Errorf("%s: %w", system, err)
	}
	return nil
}

func startPostgres(ctx context.Context, parent string, settings ...string) (*postgres, error) {
	dir, err := os.MkdirTemp(parent, "pg")
	if err != nil {
		return nil, err
	}
	pg := &postgres{dir: dir, port: 5432}
	if err := pg.find(); err != nil {
		return nil, err
	}
	return pg, pg.start(ctx, append(settings, "listen_addresses=")...)
}

// start starts the server on a new data folder, with settings such as name=value.
func (pg *postgres) start(ctx context.Context, settings ...string) error {
	if err := os.MkdirAll(pg.dir, 0o700); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		account, err := user.Lookup("postgres")
		if err != nil {
			return unavailable("PostgreSQL does not run as root, and there is no user postgres")
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		pg.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(pg.dir, uid, gid); err != nil {
			return err
		}
	}
	data := filepath.Join(pg.dir, "data")
	_, err := pg.run(ctx, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C")
	if err != nil {
		return err
	}
	args := []string{"-D", data, "-k", pg.dir, "-p", strconv.Itoa(pg.port)}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	pg.server, err = launch(pg.as, filepath.Join(pg.bin, "postgres"), args...)
	if err != nil {
		return err
	}
	err = pg.server.await(ctx, func() bool {
		_, err := pg.query(ctx, "postgres", "SELECT 1")
		return err == nil
	})
	if err != nil {
		pg.server.stop(syscall.SIGKILL)
	}
	return err
}

// find searches for the server's programs in the folder that pg_config names and in those of Debian.
func (pg *postgres) find() error {
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(out)))
	}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err == nil {
			pg.bin = folder
		}
	}
	if pg.bin == "" {
		return unavailable("no PostgreSQL server is installed")
	}
	if _, err := pg.pgbench(); err != nil {
		return unavailable("pgbench is not installed")
	}
	return nil
}

func (pg *postgres) pgbench() (string, error) {
	if path := filepath.Join(pg.bin, "pgbench"); exec.Command(path, "--version").Run() == nil {
		return path, nil
	}
	return exec.LookPath("pgbench")
}

func (pg *postgres) run(ctx context.Context, program string, args ...string) (string, error) {
	out, err := command(ctx, pg.as, nil, filepath.Join(pg.bin, program), args...)
	return strings.TrimSpace(string(out)), err
}

func (pg *postgres) query(ctx context.Context, db, sql string) (string, error) {
	return pg.run(ctx, "psql", "-h", pg.dir, "-p", strconv.Itoa(pg.port), "-U", "postgres", "-d", db, "-XAtqc", sql)
}

func (pg *postgres) url(db string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&port=%d", db, pg.dir, pg.port)
}

// blank creates the database that every run gets a copy of: the tables of the service and a token.
func (pg *postgres) blank(ctx context.Context, program string) error {
	if _, err := pg.query(ctx, "postgres", "CREATE DATABASE blank"); err != nil {
		return err
	}
	issued, err := command(ctx, nil, nil, program, "token", "issue", "--name", "bench", "--db", pg.url("blank"))
	if err != nil {
		return unavailable("the service cannot use it: " + strings.ReplaceAll(err.Error(), pg.dir, "…"))
	}
	pg.token = strings.TrimSpace(string(issued))
	return nil
}

// database returns the name of the database of a row and a function that drops it: a copy of the blank one, or the one
// with plants for rows that only read, or a copy of that.
func (pg *postgres) database(ctx context.Context, r *row, stored int64) (string, func(), error) {
	template := "blank"
	if r.request != create {
		template = "loaded"
		if err := pg.load(ctx, stored); err != nil || !r.writes() {
			return template, func() {}, err
		}
	}
	pg.copies++
	name := fmt.Sprintf("run%d", pg.copies)
	_, err := pg.query(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+template)
	if err == nil && r.request != create {
		_, err = pg.query(ctx, "postgres", "CHECKPOINT") // so that the run does not write the copy
	}
	return name, func() { pg.query(ctx, "postgres", "DROP DATABASE "+name) }, err
}

// load creates the database "loaded" once.
func (pg *postgres) load(ctx context.Context, stored int64) error {
	if pg.loaded {
		return nil
	}
	if _, err := pg.query(ctx, "postgres", "CREATE DATABASE loaded TEMPLATE blank"); err != nil {
		return err
	}
	fill := fmt.Sprintf("INSERT INTO plants (store, id, name, tag) SELECT 'main', %d + i, '%s', '%s' "+
		"FROM generate_series(0, %d) i", measure.ID(0, false), measure.Name(10), measure.Tag, stored-1)
	for _, statement := range []string{fill, "VACUUM ANALYZE plants", "CHECKPOINT"} {
		if _, err := pg.query(ctx, "loaded", statement); err != nil {
			return err
		}
	}
	pg.loaded = true
	return nil
}

// contender prepares the service on the database of a row.
func (pg *postgres) contender(ctx context.Context, program string, r *row, stored int64) (*contender, error) {
	name, drop, err := pg.database(ctx, r, stored)
	if err != nil {
		return nil, err
	}
	c := &contender{
		program: program, args: serveArgs(pg.url(name)), api: productAPI, token: pg.token, clean: drop,
		verify: func(ctx context.Context, report measure.Report) error {
			if !r.writes() {
				return nil
			}
			return r.checkStored(report, stored, pg.countIn(ctx, name))
		},
	}
	if r.request.isRead() {
		c.first = stored // creates follow the stored plants
	}
	if r.endpoint {
		st, err := engine.Open(ctx, pg.url(name), engine.Options{})
		if err != nil {
			return nil, err
		}
		return c, c.addEndpoint(ctx, st)
	}
	return c, nil
}

// countIn returns a function that counts the plants with a name in a database.
func (pg *postgres) countIn(ctx context.Context, db string) func(name string) (int64, error) {
	return func(name string) (int64, error) {
		const count = "SELECT count(*) FROM plants WHERE name = '%s' AND tag = '%s'"
		found, err := pg.query(ctx, db, fmt.Sprintf(count, name, measure.Tag))
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(found, 10, 64)
	}
}
