package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"plantstore/internal/testkit/measure"
)

// bench is one run of the harness.
type bench struct {
	options
	ctx      context.Context
	dir      string
	progress *progress
	done     int // runs, for the progress line
	planned  int
	full     *database // the store with many plants, once it exists
	postgres *postgres
	cluster  *cluster
	faults   []string // why the figures are not valid
}

func (b *bench) bin(name string) string { return filepath.Join(b.dir, "bin", name) }

const loadPackage = "plantstore/internal/testkit/load"

// build builds the programs, the product in its own module.
func (b *bench) build() error {
	for folder, packages := range map[string][]string{
		"..": {"./cmd/plantstore"}, "pocketbase": {"."},
		".": {"-pgo=../cmd/plantstore/default.pgo", loadPackage, "./variant"}, // with the profile of the product
	} {
		b.progress.say("building %s", strings.Join(packages, " "))
		args := append([]string{"build", "-C", folder, "-trimpath", "-o", b.bin("") + "/"}, packages...)
		if _, err := command(b.ctx, nil, []string{"CGO_ENABLED=0"}, "go", args...); err != nil {
			return fmt.Errorf("build %v in %s: %w", packages, folder, err)
		}
	}
	return nil
}

// all runs every row of the plan, interleaved, and returns the rows.
func (b *bench) all() ([]*row, error) {
	core, pg, growth := b.chosen(coreRows()), b.chosen(postgresRows()), b.chosen(growthRows(b.preload))
	clusters := b.chosen(citusRows())
	b.planned = b.rounds * (len(core) + len(pg) + len(clusters) + len(growth))
	err := b.rows(core, b.rounds, b.seconds)
	if err == nil && len(pg) > 0 {
		err = b.onPostgres(pg, b.rounds)
	}
	if err == nil && len(clusters) > 0 {
		err = b.onCitus(clusters, b.rounds)
	}
	if err == nil {
		err = b.rows(growth, b.rounds, b.seconds/3)
	}
	if err == nil && b.full != nil {
		err = b.full.verify(b.ctx)
	}
	return slices.Concat(core, pg, clusters, growth), err
}

func (b *bench) chosen(rows []*row) []*row {
	var chosen []*row
	for _, r := range rows {
		if b.only.MatchString(r.Key) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// rows runs every row once in each round, so that a disturbance of the machine affects all of them.
func (b *bench) rows(rows []*row, rounds int, seconds float64) error {
	for round := range rounds {
		for _, r := range rows {
			b.done++
			b.progress.say("%d/%d round %d: %s", b.done, b.planned, round+1, r.Title)
			s, err := b.once(r, seconds)
			if b.ctx.Err() != nil {
				return b.ctx.Err()
			}
			var fault fault
			if errors.As(err, &fault) {
				b.faults = append(b.faults, fmt.Sprintf("%s, round %d: %v", r.Title, round+1, err))
			} else if err != nil {
				return fmt.Errorf("%s, round %d: %w", r.Title, round+1, err)
			}
			r.samples = append(r.samples, s)
		}
	}
	return nil
}

// fault is a response other than 200, or a missing row.
type fault string

func (f fault) Error() string { return string(f) }

// once runs a row once.
func (b *bench) once(r *row, seconds float64) (sample, error) {
	switch r.kind {
	case pgbench:
		return b.postgres.bench(b.ctx, r, seconds)
	case walk:
		return b.walk(r)
	}
	c, err := b.contender(r)
	if err != nil {
		return sample{}, err
	}
	defer c.clean()
	syscall.Sync() // so that this run does not pay for the writes of an earlier one
	p, err := start(b.ctx, nil, c.program, c.args...)
	if err != nil {
		return sample{}, err
	}
	time.Sleep(100 * time.Millisecond)
	before, err := measure.Usage(p.pid())
	report, loadErr := b.load(r, c, p, seconds)
	if err := errors.Join(err, loadErr, p.stop(syscall.SIGTERM)); err != nil {
		return sample{}, fmt.Errorf("%w\n%s", err, p.output.tail())
	}
	s := newSample(report, before)
	if report.Bad > 0 {
		return s, fault(fmt.Sprintf("%d of %d requests failed; the first: %s", report.Bad, report.Sent, report.Reason))
	}
	return s, c.verify(b.ctx, report)
}

func (b *bench) load(r *row, c *contender, p *process, seconds float64) (report measure.Report, err error) {
	pids := []string{strconv.Itoa(p.pid())}
	switch r.kind {
	case postgresProduct:
		pids = append(pids, strconv.Itoa(b.postgres.server.pid()))
	case citus:
		pids = append(pids, b.cluster.pids(r)...)
	}
	out, err := command(b.ctx, nil, nil, b.bin("load"),
		"-address", p.address, "-path", c.path, "-id-name", c.idName, "-token", c.token,
		"-clients", strconv.Itoa(r.conns), "-name-bytes", strconv.Itoa(r.nameBytes),
		fmt.Sprintf("-scattered=%v", r.scattered), "-first", strconv.FormatInt(c.first, 10),
		"-warm", b.warm.String(), "-window", time.Duration(seconds*float64(time.Second)).String(),
		"-pids", strings.Join(pids, ","))
	if err != nil {
		return report, err
	}
	return report, json.Unmarshal(out, &report)
}

func newSample(r measure.Report, started measure.Used) sample {
	n := max(1, float64(r.Count))
	s := sample{
		Rate: float64(r.Count) / r.Seconds, P50: micros(r.P50), P99: micros(r.P99), P999: micros(r.P999),
		LoadCPU: micros(r.LoadCPU), Others: r.Others, CPU: micros(r.Server[0].CPU) / n,
		RSSStart: mebi(started.RSS), RSS: mebi(r.Server[0].RSS), Peak: mebi(r.Server[0].Peak),
	}
	for i, used := range r.Server {
		s.Bytes += float64(used.Bytes) / n
		switch {
		case i == 1:
			s.EngineCPU = micros(used.CPU) / n
		case i > 1:
			s.WorkerCPU += micros(used.CPU) / n
		}
	}
	return s
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// progress is a line on standard error that shows the current step.
type progress struct {
	f        *os.File
	terminal bool
}

func newProgress(f *os.File) *progress {
	info, err := f.Stat()
	return &progress{f, err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p *progress) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.terminal {
		fmt.Fprintf(p.f, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(p.f, text)
	}
}

func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.f, "\r\x1b[K")
	}
}
