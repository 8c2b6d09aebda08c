package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

// filled is a store of the growth comparison.
type filled struct {
	plants int64
	random bool // filled in passes; see inPasses
	db     *database
}

// growthRows compare stores of many plants with stores of fewer plants.
func growthRows(few, many int64) (rows []*row) {
	stores := map[string]*filled{
		"few": {plants: few}, "many": {plants: many},
		"few-random": {plants: few, random: true}, "many-random": {plants: many, random: true},
	}
	for _, like := range []row{
		{Key: "get", Title: "get", request: get},
		{Key: "list-100", Title: "list of 100", request: list, limit: 100},
		{Key: "list-1000", Title: "list of 1000", request: list, limit: 1000},
		{Key: "first-count", Title: "first count after a start", request: firstCount},
		{Key: "next-count", Title: "next count", request: nextCount},
		{Key: "create", Title: "create, ids above the stored ones", request: create},
		{Key: "create-between", Title: "create, ids between the stored ones", request: create, scattered: true},
		{Key: "restart", Title: "start after a kill", request: restart, scattered: true},
	} {
		for _, order := range []string{"", "-random"} {
			for _, size := range []string{"few", "many"} {
				r := like
				r.store = stores[size+order]
				r.Key, r.Base = like.Key+"-"+size+order, like.Key+"-few"+order
				r.Title = fmt.Sprintf("%s: %s", like.Title, r.store)
				rows = append(rows, &r)
			}
		}
	}
	return defaults(rows)
}

// serverCounts count the plants of a store on PostgreSQL, which reads them for each count.
func serverCounts(plants int64) []*row {
	like := row{Base: "count-postgres", kind: citus, request: firstCount, store: &filled{plants: plants}}
	var rows []*row
	for _, on := range []struct {
		key, title, by string
		workers        int
	}{
		{"postgres", "PostgreSQL", "", 0}, {"citus-id", "Citus by id, 2 workers", "id", 2},
		{"citus-store", "Citus by store, 2 workers", "store", 2},
	} {
		r := like
		r.Key, r.by, r.workers = "count-"+on.key, on.by, on.workers
		r.Title = fmt.Sprintf("each count: %s plants on %s", thousands(float64(plants)), on.title)
		rows = append(rows, &r)
	}
	return defaults(rows)
}

func (f *filled) String() string {
	order := "ascending"
	if f.random {
		order = "random"
	}
	return thousands(float64(f.plants)) + " plants, " + order
}

// check compares a number of plants with those in the store.
func (f *filled) check(n int64) error {
	db := f.db
	if db == nil { // on PostgreSQL
		db = &database{count: f.plants}
	}
	return db.check(n)
}

// growth is the report of the rows above.
var growth = report{targets: growthTargets, notes: []string{
	"Stores are filled with ascending ids, or in ascending passes over all ids with every 16th plant each, which split " +
		"pages nearly as random inserts do (\"random\"). Ratio: requests/s to the smaller store that was filled " +
		"in the same way; for times, that of the smaller store to that of the larger one, and for counts on Citus that of " +
		"PostgreSQL to it.",
	"On SQLite the writer keeps the number after the first count. PostgreSQL reads the plants for each count; their " +
		"table was vacuumed before.",
	"64 connections with one request in flight each, 10-byte names. Reads choose plants at random; every get must " +
		"return its id, every list its first id and as many plants as it asked for.",
	"The service drops the file from the page cache when it starts. Before the load of a row it is read once, so that " +
		"it is in memory if it fits; the first count and the start after a kill are measured without that.",
	"CPU: user and system time of the server for each request. Bytes: written to the block layer for each request. " +
		"RSS: after start → under load. Max: the longest response of a round; the table has the median of the rounds. " +
		"For times it is the longest of all rounds.",
	fmt.Sprintf("Start after a kill: SIGKILL during creates between the stored ids, %d times in each round, then the "+
		"time from the start of the program until a get returns 200.", kills),
}}

func growthTargets(res result) (all []target) {
	for _, l := range res.Rows {
		if l.Request == restart {
			all = append(all, atMost("longest "+l.Title, 250, l.longest()/1000).in(" ms"))
		}
	}
	return all
}

// grow fills the stores and runs the rows.
func (b *bench) grow(part section) error {
	if err := b.checkSpace(part.rows); err != nil {
		return err
	}
	for _, r := range part.rows {
		if r.store.db != nil {
			continue
		}
		id := measure.SpreadID
		if r.store.random {
			id = func(i, n int64) int64 { return measure.SpreadID(inPasses(i, n), n) }
		}
		if err := b.prepare(&r.store.db, r.store.plants, id); err != nil {
			return err
		}
		info, err := os.Stat(r.store.db.path)
		if err != nil {
			return err
		}
		b.report.notes = append(b.report.notes, fmt.Sprintf("%s: a file of %.2f GB, %.1f bytes for each plant.",
			r.store, float64(info.Size())/1e9, float64(info.Size())/float64(r.store.plants)))
	}
	return b.rows(part)
}

// checkSpace returns an error if the disk is too small for the stores of the rows.
func (b *bench) checkSpace(rows []*row) error {
	const plantBytes, wal = 55, 256 << 20 // in a file, with some reserve
	need, seen := int64(0), map[*filled]bool{}
	for _, r := range rows {
		if !seen[r.store] {
			seen[r.store] = true
			need += r.store.plants*plantBytes + wal
		}
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(b.dir, &disk); err != nil {
		return err
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < need {
		return fmt.Errorf("the stores need %.1f GB in %s, but only %.1f GB are free; choose another folder with --dir",
			float64(need)/1e9, b.options.dir, float64(free)/1e9)
	}
	return nil
}

const passes = 16

// inPasses returns the index of the plant, of n, that is stored as number i, so that pages split nearly as in a random
// order. Truly random inserts take hours: the fill makes ascending passes over all ids instead, each with every 16th
// plant, and each pass splits the pages of earlier ones. With a million plants:
//
//	                            ascending   this fill   truly random, batches of 64
//	bytes of the file per plant      41.9        41.0                          41.9
//	bytes free in a leaf page         227         187                           227
//	standard deviation of these         0         184                           241
//	bytes per random create then    6 313       9 908                         9 359
func inPasses(i, n int64) int64 {
	for pass := range int64(passes) {
		first := pass * 11 % passes
		in := (n - first + passes - 1) / passes
		if i < in {
			return first + i*passes
		}
		i -= in
	}
	panic("i must be less than n")
}

// count measures how long the service takes to count its plants, for the first or the second time after a start.
func (b *bench) count(r *row) (s sample, err error) {
	server, err := b.begin(r)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.end(server)) }()
	var count string
	once := func() (took times, err error) {
		err = took.measure(func() error {
			header, _, err := server.fetch(b.ctx, server.token, "/plants?limit=1", "count=exact")
			count = header.Get("Plants-Count")
			return err
		})
		return took, err
	}
	took, err := once()
	if err == nil && r.request == nextCount {
		took, err = once()
	}
	if err != nil {
		return s, err
	}
	if count == "" {
		r.skipped = fmt.Sprintf("the service ended the count after %v", took.total.Round(time.Millisecond))
		return took.sample(), nil
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return s, err
	}
	return took.sample(), r.store.check(n)
}

// times are how long a step took, each time, and how long other virtual machines used a core meanwhile.
type times struct {
	measure.Histogram
	total, stolen time.Duration
}

func (t *times) measure(step func() error) error {
	_, before := measure.Busy()
	began := time.Now()
	err := step()
	took := time.Since(began)
	_, after := measure.Busy()
	t.Record(took)
	t.total, t.stolen = t.total+took, t.stolen+after-before
	return err
}

func (t *times) sample() sample {
	return sample{
		Rate: 1 / t.Quantile(0.5).Seconds(), P50: micros(t.Quantile(0.5)), Max: micros(t.Max()),
		Stolen: t.stolen.Seconds() / max(1, t.total.Seconds()), // the kernel counts it in steps of 10 ms
	}
}

const kills = 5 // in each round

// restart kills the service during creates and measures how long it takes from its next start until a get returns 200.
func (b *bench) restart(r *row) (s sample, err error) {
	server, err := b.begin(r)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, server.stop(syscall.SIGTERM)) }()
	var took times
	for range kills {
		if err := b.kill(server); err != nil {
			return s, err
		}
		path := fmt.Sprintf("/plants/%d", measure.SpreadID(rand.Int64N(r.store.plants), r.store.plants))
		if err := took.measure(func() error {
			p, err := start(b.ctx, nil, server.contender.program, server.args...)
			if err != nil {
				return err
			}
			server.process = p
			_, _, err = p.fetch(b.ctx, server.token, path)
			return err
		}); err != nil {
			return s, err
		}
	}
	return took.sample(), nil
}

// kill sends creates to the service and kills it meanwhile.
func (b *bench) kill(s *server) error {
	const warm, window = time.Second, time.Second // it is killed in the first fifth of the window
	timer := time.AfterFunc(warm+rand.N(window/5), func() { s.cmd.Process.Kill() })
	defer timer.Stop()
	report, err := b.load(s.row, s.contender, s.process, warm, window.Seconds())
	if err != nil {
		return err
	}
	<-s.ended
	s.first += report.Sent
	db := s.store.db
	db.sent, db.count, db.maybe = db.sent+report.Sent, db.count+report.OK, db.maybe+report.Sent-report.OK
	if report.OK == 0 || report.Bad == 0 {
		return fault(fmt.Sprintf("%d creates returned 200 and %d failed; the kill was not during creates",
			report.OK, report.Bad))
	}
	return nil
}
