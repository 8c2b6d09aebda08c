package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"plantstore/internal/testkit/measure"
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
	copies int
}

// unavailable is the reason that the PostgreSQL rows cannot be measured.
type unavailable string

func (u unavailable) Error() string { return string(u) }

// onPostgres runs the rows that need the server, or marks them as skipped.
func (b *bench) onPostgres(rows []*row, rounds int) error {
	b.progress.say("%d/%d starting PostgreSQL", b.done, b.planned)
	pg, err := startPostgres(b.ctx, b.dir)
	if err == nil {
		b.postgres = pg
		defer pg.server.stop(syscall.SIGINT)
		err = pg.blank(b.ctx, b.bin("plantstore"))
	}
	var reason unavailable
	if errors.As(err, &reason) {
		for _, r := range rows {
			r.skipped = reason.Error()
		}
		b.done += rounds * len(rows)
		return nil
	}
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	return b.rows(rows, rounds, b.seconds)
}

func startPostgres(ctx context.Context, parent string) (*postgres, error) {
	pg := &postgres{dir: filepath.Join(parent, "pg"), port: 5432}
	if err := pg.find(); err != nil {
		return nil, err
	}
	return pg, pg.start(ctx, "listen_addresses=")
}

// start starts the server on a new data folder, with settings such as name=value.
func (pg *postgres) start(ctx context.Context, settings ...string) error {
	if err := os.Mkdir(pg.dir, 0o700); err != nil {
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

// copy creates a fresh database and returns its name and a function that drops it.
func (pg *postgres) copy(ctx context.Context) (string, func(), error) {
	pg.copies++
	name := fmt.Sprintf("run%d", pg.copies)
	_, err := pg.query(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE blank")
	return name, func() { pg.query(ctx, "postgres", "DROP DATABASE "+name) }, err
}

// contender prepares the service on a fresh database.
func (pg *postgres) contender(ctx context.Context, program string) (*contender, error) {
	name, drop, err := pg.copy(ctx)
	if err != nil {
		return nil, err
	}
	return &contender{
		program: program, args: serveArgs(pg.url(name)), path: "/plants", idName: "id", token: pg.token, clean: drop,
		verify: func(ctx context.Context, report measure.Report) error { return pg.verify(ctx, name, report.OK) },
	}, nil
}

func (pg *postgres) verify(ctx context.Context, db string, created int64) error {
	const count = "SELECT count(*) FROM plants WHERE name = '%s' AND tag = '%s'"
	found, err := pg.query(ctx, db, fmt.Sprintf(count, measure.Name(10), measure.Tag))
	if err != nil {
		return err
	}
	if found != strconv.FormatInt(created, 10) {
		return fault(fmt.Sprintf("the database contains %s plants, and %d were confirmed", found, created))
	}
	return nil
}

// script inserts one plant. The counter n and the number of the client give ids that are new and
// nearly ascending.
const script = `\set n :n + 1
\set id 6000000000000000 + :n * :clients + :client_id
INSERT INTO plants (store, id, name, tag) VALUES ('main', :id, '%s', '%s');
`

var (
	rateOf   = regexp.MustCompile(`tps = ([\d.]+) \(without initial connection time\)`)
	countOf  = regexp.MustCompile(`transactions actually processed: (\d+)`)
	failedOf = regexp.MustCompile(`number of failed transactions: (\d+)`)
)

// bench runs pgbench for a row.
func (pg *postgres) bench(ctx context.Context, r *row, seconds float64) (s sample, err error) {
	name, drop, err := pg.copy(ctx)
	if err != nil {
		return s, err
	}
	defer drop()
	path := filepath.Join(pg.dir, "insert.sql")
	if err := os.WriteFile(path, fmt.Appendf(nil, script, measure.Name(r.nameBytes), measure.Tag), 0o644); err != nil {
		return s, err
	}
	program, err := pg.pgbench()
	if err != nil {
		return s, err
	}
	syscall.Sync()
	before, err := measure.Usage(pg.server.pid())
	if err != nil {
		return s, err
	}
	logs := filepath.Join(pg.dir, name)
	out, err := command(ctx, pg.as, nil, program, "-h", pg.dir, "-U", "postgres", "-n", "-M", "prepared", "-f", path,
		"-c", strconv.Itoa(r.conns), "-j", "2", "-T", strconv.Itoa(max(1, int(seconds+0.5))),
		"-D", "n=0", "-D", fmt.Sprintf("clients=%d", r.conns),
		"--log", "--log-prefix", logs, "--sampling-rate", "0.1", name)
	if err != nil {
		return s, err
	}
	after, err := measure.Usage(pg.server.pid())
	if err != nil {
		return s, err
	}
	rate, count := rateOf.FindSubmatch(out), countOf.FindSubmatch(out)
	if rate == nil || count == nil {
		return s, fmt.Errorf("pgbench printed no result: %s", out)
	}
	s.Rate, _ = strconv.ParseFloat(string(rate[1]), 64)
	n, _ := strconv.ParseInt(string(count[1]), 10, 64)
	s.EngineCPU = micros(after.CPU-before.CPU) / max(1, float64(n))
	s.Bytes = float64(after.Bytes-before.Bytes) / max(1, float64(n))
	if failed := failedOf.FindSubmatch(out); failed != nil && string(failed[1]) != "0" {
		return s, fault(fmt.Sprintf("%s inserts of pgbench failed", failed[1]))
	}
	if err := latencies(&s, logs); err != nil {
		return s, err
	}
	return s, pg.verify(ctx, name, n)
}

// latencies reads pgbench's logs. Each line is a transaction, the third column its time in µs.
func latencies(s *sample, prefix string) error {
	files, err := filepath.Glob(prefix + ".*")
	if err != nil {
		return err
	}
	var times measure.Histogram
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 2 {
				us, _ := strconv.ParseInt(fields[2], 10, 64)
				times.Record(time.Duration(us) * time.Microsecond)
			}
		}
	}
	s.P50, s.P99, s.P999 = micros(times.Quantile(0.5)), micros(times.Quantile(0.99)), micros(times.Quantile(0.999))
	return nil
}
