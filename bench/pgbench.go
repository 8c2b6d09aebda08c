package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

// Statements of pgbench. The counter n and the number of the client give ids that are new and nearly ascending.
const (
	insertScript = `\set n :n + 1
\set id :first + :stored + :n * :clients + :client_id
INSERT INTO plants (store, id, name, tag) VALUES ('main', :id, '%s', '%s');
`
	getScript = `\set id random(:first, :first + :stored - 1)
SELECT id, name, tag FROM plants WHERE store = 'main' AND id = :id;
`
	listScript = `\set id random(:first, :first + :stored - %[1]d)
SELECT id, name, tag FROM plants WHERE store = 'main' AND id >= :id ORDER BY id LIMIT %[1]d;
`
)

// scripts returns the scripts of a row, each with its weight.
func (r *row) scripts() map[string]int {
	insert := fmt.Sprintf(insertScript, measure.Name(r.nameBytes), measure.Tag)
	switch {
	case r.creators > 0:
		return map[string]int{fmt.Sprintf("\\if :client_id < %d\n%s\\else\n%s\\endif\n", r.conns, getScript, insert): 1}
	case r.request == get:
		return map[string]int{getScript: 1}
	case r.request == list:
		return map[string]int{fmt.Sprintf(listScript, r.limit): 1}
	case r.request == mixed:
		return map[string]int{getScript: 9, insert: 1}
	}
	return map[string]int{insert: 1}
}

var (
	rateOf   = regexp.MustCompile(`tps = ([\d.]+) \(without initial connection time\)`)
	countOf  = regexp.MustCompile(`transactions actually processed: (\d+)`)
	failedOf = regexp.MustCompile(`number of failed transactions: (\d+)`)
)

// bench runs pgbench for a row.
func (pg *postgres) bench(ctx context.Context, r *row, stored int64, seconds float64) (s sample, err error) {
	name, drop, err := pg.database(ctx, r, stored)
	if err != nil {
		return s, err
	}
	defer drop()
	logs := filepath.Join(pg.dir, name+"-"+r.Key)
	args, err := pg.pgbenchArgs(r, stored, seconds, logs)
	if err != nil {
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
	out, err := command(ctx, pg.as, nil, program, append(args, name)...)
	if err != nil {
		return s, err
	}
	after, err := measure.Usage(pg.server.pid())
	if err != nil {
		return s, err
	}
	rate, count := rateOf.FindSubmatch(out), countOf.FindSubmatch(out)
	if count != nil && string(count[1]) == "0" {
		return s, fault("pgbench made no transaction: connecting took all its time")
	}
	if rate == nil || count == nil {
		return s, fmt.Errorf("pgbench printed no result: %s", out)
	}
	s.Rate, _ = strconv.ParseFloat(string(rate[1]), 64)
	n, _ := strconv.ParseInt(string(count[1]), 10, 64)
	s.EngineCPU = micros(after.CPU-before.CPU) / max(1, float64(n))
	s.Bytes = float64(after.Bytes-before.Bytes) / max(1, float64(n))
	if failed := failedOf.FindSubmatch(out); failed != nil && string(failed[1]) != "0" {
		return s, fault(fmt.Sprintf("%s transactions of pgbench failed", failed[1]))
	}
	timed, err := latencies(&s, r, logs)
	if err != nil {
		return s, err
	}
	if r.creators > 0 { // the log has every transaction
		s.Beside = s.Rate * float64(n-timed) / float64(n)
		s.Rate -= s.Beside
	}
	if r.request != create {
		return s, nil
	}
	return s, r.checkStored(measure.Report{Created: n}, 0, pg.countIn(ctx, name))
}

func (pg *postgres) pgbenchArgs(r *row, stored int64, seconds float64, logs string) ([]string, error) {
	sampling := "0.1"
	if r.creators > 0 || r.conns == 1 {
		sampling = "1"
	}
	if r.request == create {
		stored = 0
	}
	clients := r.conns + r.creators
	connecting := clients / 150 // seconds, which count as part of the time below
	args := []string{
		"-h", pg.dir, "-U", "postgres", "-n", "-M", "prepared", "-c", strconv.Itoa(clients),
		"-j", strconv.Itoa(min(2, clients)), "-T", strconv.Itoa(max(1, int(seconds+0.5)) + connecting),
		"--log", "--log-prefix", logs, "--sampling-rate", sampling,
	}
	for script, weight := range r.scripts() {
		path := filepath.Join(pg.dir, fmt.Sprintf("script%d.sql", weight))
		if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
			return nil, err
		}
		args = append(args, "-f", fmt.Sprintf("%s@%d", path, weight))
	}
	for name, value := range map[string]int64{
		"n": 0, "clients": int64(clients), "first": measure.ID(0, false), "stored": stored,
	} {
		args = append(args, "-D", fmt.Sprintf("%s=%d", name, value))
	}
	return args, nil
}

// latencies reads pgbench's logs and removes them. Each line is a transaction: the first column is its client, the
// third its time in µs. It returns how many were timed; clients that only create are not.
func latencies(s *sample, r *row, prefix string) (int64, error) {
	files, err := filepath.Glob(prefix + ".*")
	if err != nil {
		return 0, err
	}
	var times measure.Histogram
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 3 {
				continue
			}
			if client, _ := strconv.Atoi(fields[0]); client < r.conns {
				us, _ := strconv.ParseInt(fields[2], 10, 64)
				times.Record(time.Duration(us) * time.Microsecond)
			}
		}
		if err := os.Remove(file); err != nil {
			return 0, err
		}
	}
	s.P50, s.P99, s.P999 = micros(times.Quantile(0.5)), micros(times.Quantile(0.99)), micros(times.Quantile(0.999))
	return times.Count(), nil
}
