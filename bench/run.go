package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

// bench is one run of the harness.
type bench struct {
	options
	ctx      context.Context
	dir      string
	progress *progress
	done     int // runs, for the progress line
	planned  int
	repeated int       // repetitions of disturbed runs
	full     *database // the store with many plants, once it exists
	readable *database // the store for reads and edits, once it exists
	records  *records  // the same in PocketBase
	postgres *postgres
	cluster  *cluster
	faults   []string // why the figures are not valid
	report   report
}

func (b *bench) bin(name string) string { return filepath.Join(b.dir, "bin", name) }

// build builds the programs, the product in its own module.
func (b *bench) build() error {
	for folder, packages := range map[string][]string{
		"..": {"./cmd/plantstore"}, "pocketbase": {"."},
		".": {"-pgo=../cmd/plantstore/default.pgo", "./load", "./variant"}, // with the profile of the product
	} {
		b.progress.say("building %s", strings.Join(packages, " "))
		args := buildArgs(folder, b.bin("")+"/", packages...)
		if _, err := command(b.ctx, nil, buildEnv, "go", args...); err != nil {
			return fmt.Errorf("build %v in %s: %w", packages, folder, err)
		}
	}
	return nil
}

var buildEnv = []string{"CGO_ENABLED=0"}

// buildArgs are the arguments of go. Without the revision in it, equal sources give equal programs.
func buildArgs(folder, out string, packages ...string) []string {
	return append([]string{"build", "-C", folder, "-trimpath", "-buildvcs=false", "-o", out}, packages...)
}

// section is a part of the plan whose rows are interleaved.
type section struct {
	rows    []*row
	rounds  int
	warm    time.Duration
	seconds float64
	run     func(*bench, section) error
}

// all runs every row of the plan and returns the rows.
func (b *bench) all() ([]*row, error) {
	rounds, fewer, seconds := b.rounds, (b.rounds+1)/2, b.seconds
	plan := []section{
		{coreRows(), rounds, b.warm, seconds, (*bench).rows},
		{postgresRows(), rounds, b.warm, seconds, onPostgres((*bench).rows)},
		// Fewer rounds here, and shorter windows below, keep the whole run at about ten minutes.
		{citusRows(), fewer, b.warm, seconds, (*bench).onCitus},
		{conditionRows(b.preload), rounds, b.warm, seconds / 3, (*bench).rows},
		{readRows(), fewer, b.warm / 2, seconds / 4, onPostgres((*bench).rows, manyConnections)},
	}
	if b.minute {
		plan = []section{{minuteRows(b.preload), rounds, b.warm, seconds, (*bench).rows}}
	}
	if b.growth {
		plan = []section{
			{growthRows(b.stored, b.preload), rounds, b.warm, seconds, (*bench).grow},
			{serverCounts(b.stored), rounds, b.warm, seconds, (*bench).onCitus},
		}
	}
	var all []*row
	for i := range plan {
		plan[i].rows = b.chosen(plan[i].rows)
		b.planned += plan[i].rounds * len(plan[i].rows)
		all = append(all, plan[i].rows...)
	}
	for _, s := range plan {
		if len(s.rows) == 0 {
			continue
		}
		if err := s.run(b, s); err != nil {
			return all, err
		}
	}
	return all, b.verifyShared(all)
}

// verifyShared checks the databases that creates of several rows have changed. Counting takes seconds, so it happens
// once, at the end.
func (b *bench) verifyShared(rows []*row) error {
	shared := map[*database]bool{b.full: true}
	for _, r := range rows {
		if r.store != nil {
			shared[r.store.db] = true
		}
	}
	delete(shared, nil)
	for db := range shared {
		var fault fault
		switch err := db.verify(b.ctx); {
		case errors.As(err, &fault):
			b.faults = append(b.faults, fault.Error())
		case err != nil:
			return err
		}
	}
	return nil
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
func (b *bench) rows(part section) error {
	for round := range part.rounds {
		for _, r := range part.rows {
			b.done++
			if r.skipped != "" {
				continue
			}
			b.progress.say("%d/%d round %d: %s", b.done, b.planned, round+1, r.Title)
			s, err := b.calm(r, part)
			if err := b.judge(r, round, err); err != nil {
				return err
			}
			r.samples = append(r.samples, s)
		}
	}
	return nil
}

const maxRepeats = 2 // of a disturbed run

// maxStolen is how many cores other virtual machines may use during a run; if they use more, it is disturbed. On a
// mostly idle machine, as during a start of the service, the kernel reports up to 0.2 even if there are none.
func (q request) maxStolen() float64 {
	if q.isTimed() {
		return 0.25
	}
	return 0.05
}

// awaitCalm waits until other virtual machines use no core, or until the time for that is used up. They use them for
// seconds or minutes, so that a repetition right after a disturbed run is often disturbed too.
func (b *bench) awaitCalm() {
	for b.wait > 0 && b.ctx.Err() == nil {
		began := time.Now()
		var took times
		took.measure(func() error { // the kernel reports it only while the cores are needed
			useCores(time.Second)
			return nil
		})
		if took.sample().Stolen <= create.maxStolen() {
			return
		}
		b.wait -= time.Since(began)
	}
}

// useCores keeps every core busy.
func useCores(d time.Duration) {
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for end := time.Now().Add(d); time.Now().Before(end); {
			}
		})
	}
	all.Wait()
}

// calm runs a row, repeats it while it is disturbed, at most maxRepeats times, and returns the least disturbed run.
func (b *bench) calm(r *row, part section) (sample, error) {
	s, err := b.once(r, part)
	for range maxRepeats {
		if err != nil || s.Stolen <= r.request.maxStolen() || r.skipped != "" || b.repeated >= b.planned/2 {
			break
		}
		b.repeated++
		b.progress.say("%d/%d repeating, other virtual machines used %.2f cores: %s", b.done, b.planned, s.Stolen, r.Title)
		b.awaitCalm()
		var again sample
		if again, err = b.once(r, part); again.Stolen < s.Stolen {
			s = again
		}
	}
	return s, err
}

// judge records a fault and returns every other error.
func (b *bench) judge(r *row, round int, err error) error {
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	var fault fault
	if errors.As(err, &fault) {
		b.faults = append(b.faults, fmt.Sprintf("%s, round %d: %v", r.Title, round+1, err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s, round %d: %w", r.Title, round+1, err)
	}
	return nil
}

// fault is a response other than 200, or a missing row.
type fault string

func (f fault) Error() string { return string(f) }

// once runs a row once.
func (b *bench) once(r *row, part section) (sample, error) {
	seconds := part.seconds
	if r.request == replace || r.request == remove {
		seconds /= 2 // to keep the whole run short
	}
	switch r.kind {
	case pgbench:
		return withStolen(func() (sample, error) { return b.postgres.bench(b.ctx, r, b.stored, seconds) })
	case walk:
		return withStolen(func() (sample, error) { return b.walk(r) })
	}
	switch r.request {
	case restart:
		return b.restart(r)
	case firstCount, nextCount:
		return b.count(r)
	}
	server, err := b.begin(r)
	if err != nil {
		return sample{}, err
	}
	if r.store != nil {
		if err := r.store.db.cache(); err != nil {
			return sample{}, errors.Join(err, b.end(server))
		}
	}
	s, err := b.window(server, part.warm, seconds)
	return s, errors.Join(err, b.end(server))
}

// withStolen runs what does not report the cores that other virtual machines use meanwhile, and adds them.
func withStolen(run func() (sample, error)) (s sample, err error) {
	var took times
	err = took.measure(func() error {
		s, err = run()
		return err
	})
	s.Stolen = took.sample().Stolen
	return s, err
}

// server is a contender that runs.
type server struct {
	*row
	*contender
	*process
	started measure.Used   // after the start
	total   measure.Report // of all windows
}

// begin starts the contender of a row.
func (b *bench) begin(r *row) (*server, error) {
	c, err := b.contender(r)
	if err != nil {
		return nil, err
	}
	syscall.Sync() // so that this run does not pay for the writes of an earlier one
	program, args := c.program, c.args
	if r.cores != nil {
		program, args = "env", append([]string{"GOMAXPROCS=1", "taskset", "-c", r.cores[0], c.program}, c.args...)
	}
	p, err := start(b.ctx, nil, program, args...)
	if err != nil {
		c.clean()
		return nil, err
	}
	time.Sleep(100 * time.Millisecond)
	started, err := measure.Usage(p.pid())
	return &server{row: r, contender: c, process: p, started: started, total: measure.Report{First: c.first}}, err
}

// window puts load on a server.
func (b *bench) window(s *server, warm time.Duration, seconds float64) (sample, error) {
	report, err := b.load(s.row, s.contender, s.process, warm, seconds)
	if err != nil {
		return sample{}, fmt.Errorf("%w\n%s", err, s.output.tail())
	}
	s.first += report.Created
	if s.request == replace || s.request == remove {
		s.first += report.Sent
	}
	s.total.Sent += report.Sent
	s.total.OK += report.OK
	s.total.Created += report.Created
	switch {
	case report.Bad > 0:
		err = fault(fmt.Sprintf("%d of %d requests failed; the first: %s", report.Bad, report.Sent, report.Reason))
	case report.Count == 0:
		err = fault("the window has no response")
	default:
		err = s.checkBodies(report)
	}
	return newSample(report, s.started), err
}

// end stops a server, checks its database and removes it.
func (b *bench) end(s *server) error {
	defer s.clean()
	if err := s.stop(syscall.SIGTERM); err != nil {
		return err
	}
	return s.verify(b.ctx, s.total)
}

func (b *bench) load(
	r *row, c *contender, p *process, warm time.Duration, seconds float64,
) (report measure.Report, err error) {
	pids := []string{strconv.Itoa(p.pid())}
	switch r.kind {
	case postgresProduct:
		pids = append(pids, strconv.Itoa(b.postgres.server.pid()))
	case citus:
		pids = append(pids, b.cluster.pids(r)...)
	}
	args := append(r.loadArgs(c.api, b.stored), "-address", p.address, "-token", c.token,
		"-first", strconv.FormatInt(c.first, 10), "-warm", warm.String(),
		"-window", time.Duration(seconds*float64(time.Second)).String(), "-pids", strings.Join(pids, ","))
	program := b.bin("load")
	if r.cores != nil {
		program, args = "taskset", append([]string{"-c", r.cores[1], program}, args...)
	}
	out, err := command(b.ctx, nil, nil, program, args...)
	if err != nil {
		return report, err
	}
	return report, json.Unmarshal(out, &report)
}

func newSample(r measure.Report, started measure.Used) sample {
	n := max(1, float64(r.Count+r.Beside))
	s := sample{
		Rate: float64(r.Count) / r.Seconds, P50: micros(r.P50), P99: micros(r.P99), P999: micros(r.P999), Max: micros(r.Max),
		LoadCPU: micros(r.LoadCPU), Others: r.Others, Stolen: r.Stolen, CPU: micros(r.Server[0].CPU) / n,
		RSSStart: mebi(started.RSS), RSS: mebi(r.Server[0].RSS), Peak: mebi(r.Server[0].Peak),
		Body: float64(r.Body) / r.Seconds / 1e6, Beside: float64(r.Beside) / r.Seconds,
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
