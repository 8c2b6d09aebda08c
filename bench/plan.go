package main

import (
	"fmt"
	"time"
)

// row is one line of the table: a contender under some conditions.
type row struct {
	Key, Title string
	Base       string // key of the row that the ratio refers to
	kind       kind
	conns      int
	nameBytes  int
	scattered  bool          // ids in random order
	slower     time.Duration // added to every commit
	full       bool          // the store contains many plants already
	workers    int           // of the Citus cluster; 0: plain PostgreSQL
	by         string        // the column that distributes the plants of the cluster

	samples []sample // one for each round
	skipped string   // why there are none
}

// kind is the program to start and its mode.
type kind int

const (
	product kind = iota
	noStore
	bare
	single
	slow
	pocketBase
	pocketBaseQuiet
	postgresProduct
	pgbench
	citus
	walk
)

// sample contains the figures of one round.
type sample struct {
	Rate      float64 `json:"rate"` // creates/s
	P50       float64 `json:"p50"`  // µs, as are the two below
	P99       float64 `json:"p99"`
	P999      float64 `json:"p999"`
	CPU       float64 `json:"cpu"`        // µs of the server for each create
	EngineCPU float64 `json:"engine_cpu"` // µs of PostgreSQL, or of the coordinator, for each create
	WorkerCPU float64 `json:"worker_cpu"` // µs of all workers for each create
	Bytes     float64 `json:"bytes"`      // written for each create
	RSSStart  float64 `json:"rss_start"`  // MiB, as are the two below
	RSS       float64 `json:"rss"`
	Peak      float64 `json:"peak"`
	LoadCPU   float64 `json:"load_cpu"` // µs of the load process for each create
	Others    float64 `json:"others"`   // cores used by all other processes of the machine
}

// coreRows are the service and the systems it is compared with.
func coreRows() []*row {
	rows := []*row{
		{Key: "ours", Title: "Plant Store", Base: "none", kind: product},
		{Key: "none", Title: "(a) our HTTP stack, nothing stored", Base: "none", kind: noStore},
		{Key: "bare", Title: "(g) bare net/http handler, nothing stored", Base: "none", kind: bare},
		{Key: "single", Title: "(b) one transaction for each request", Base: "none", kind: single},
		{Key: "pocketbase", Title: "(c) PocketBase, synchronous=NORMAL", Base: "none", kind: pocketBase},
		{Key: "pocketbase-quiet", Title: "(c) PocketBase without its request log", Base: "none", kind: pocketBaseQuiet},
	}
	return defaults(rows)
}

func defaults(rows []*row) []*row {
	for _, r := range rows {
		r.conns, r.nameBytes = 64, 10
	}
	return rows
}

// postgresRows run separately, so that the server's background work does not affect other rows.
func postgresRows() []*row {
	return defaults([]*row{
		{Key: "postgres", Title: "Plant Store on PostgreSQL", Base: "pgbench", kind: postgresProduct},
		{Key: "pgbench", Title: "(d) pgbench, prepared inserts of one row", Base: "pgbench", kind: pgbench},
	})
}

// citusRows compare a Citus cluster with one PostgreSQL server. All its nodes share this machine.
func citusRows() []*row {
	rows := []*row{{Key: "citus-none", Title: "(e) one PostgreSQL server", Base: "citus-none", kind: citus}}
	for _, by := range []string{"id", "store"} {
		for n := 1; n <= maxWorkers; n++ {
			rows = append(rows, &row{
				Key: fmt.Sprintf("citus-%s-%d", by, n), Title: fmt.Sprintf("Citus by %s, %s", by, plural(n, "worker")),
				Base: "citus-none", kind: citus, workers: n, by: by,
			})
		}
	}
	rows = append(rows,
		&row{Key: "walk-none", Title: "(f) read all plants of one PostgreSQL server", Base: "walk-none", kind: walk},
		&row{Key: "walk-id", Title: "the same, Citus by id", Base: "walk-none", kind: walk, workers: 2, by: "id"},
		&row{Key: "walk-store", Title: "the same, Citus by store", Base: "walk-none", kind: walk, workers: 2, by: "store"})
	return defaults(rows)
}

// growthRows run the service under other conditions.
func growthRows(preload int64) []*row {
	var rows []*row
	add := func(key, title, base string, change func(*row)) {
		r := &row{Key: key, Title: title, Base: base, kind: product, conns: 64, nameBytes: 10}
		change(r)
		rows = append(rows, r)
	}
	add("single-1", "(b) with 1 connection", "conns-1", func(r *row) { r.kind, r.conns = single, 1 })
	for _, n := range []int{1, 8, 64, 256, 1024} {
		add(fmt.Sprintf("conns-%d", n), plural(n, "connection"), "conns-64", func(r *row) { r.conns = n })
	}
	add("random", "ids in random order", "conns-64", func(r *row) { r.scattered = true })
	many := thousands(float64(preload))
	add("full", "store with "+many+" plants", "conns-64", func(r *row) { r.full = true })
	add("full-random", "the same, ids in random order", "conns-64", func(r *row) { r.full, r.scattered = true, true })
	add("name-1k", "names of 1 KB", "conns-64", func(r *row) { r.nameBytes = 1 << 10 })
	add("name-32k", "names of 32 KB", "conns-64", func(r *row) { r.nameBytes = 32 << 10 })
	for _, ms := range []int{1, 5} {
		add(fmt.Sprintf("slow-%d", ms), fmt.Sprintf("commits %d ms slower, 256 connections", ms), "conns-256", func(r *row) {
			r.kind, r.conns, r.slower = slow, 256, time.Duration(ms)*time.Millisecond
		})
	}
	return rows
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
