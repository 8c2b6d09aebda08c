package main

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// row is one line of the table: a contender under some conditions.
type row struct {
	Key, Title string
	Base       string // key of the row that the ratio refers to
	kind       kind
	request    request
	limit      int // plants of a list
	conns      int
	creators   int // more connections, which only create
	nameBytes  int
	scattered  bool          // ids in random order
	slower     time.Duration // added to every commit
	cores      []string      // of the service, with GOMAXPROCS=1, and of the load; nil: any
	full       bool          // the store contains many plants already
	endpoint   bool          // the store has a webhook endpoint
	store      *filled       // the store of a row that is about growth
	workers    int           // of the Citus cluster; 0: plain PostgreSQL
	by         string        // the column that distributes the plants of the cluster

	program string   // of the service; "": the one that was built from the working tree
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

// request is what the connections of a row send.
type request string

const (
	create  request = "create"
	get     request = "get"
	list    request = "list"
	mixed   request = "mixed" // get and, for createShare of the requests, create
	replace request = "replace"
	remove  request = "remove"

	restart    request = "restart" // create, until the service is killed, and start it again
	firstCount request = "first count"
	nextCount  request = "next count"
)

const createShare = 0.1 // in a mixed row

// isRead reports whether the row is one of the table of reads.
func (q request) isRead() bool { return q == get || q == list || q == mixed }

// isTimed reports whether the row has single times in place of a rate.
func (q request) isTimed() bool { return q == restart || q == firstCount || q == nextCount }

// writes reports whether the row changes the plants of its database.
func (r *row) writes() bool {
	return !slices.Contains([]request{get, list, firstCount, nextCount}, r.request) || r.creators > 0
}

// isProduct reports whether the row measures the service itself.
func (k kind) isProduct() bool { return k == product || k == postgresProduct || k == citus }

// onPostgres reports whether the row needs a PostgreSQL server.
func (k kind) onPostgres() bool { return k == postgresProduct || k == pgbench }

// sample contains the figures of one round.
type sample struct {
	Rate      float64 `json:"rate"` // requests/s
	P50       float64 `json:"p50"`  // µs, as are the three below
	P99       float64 `json:"p99"`
	P999      float64 `json:"p999"`
	Max       float64 `json:"max"`        // 0 if only some requests were timed
	CPU       float64 `json:"cpu"`        // µs of the server for each request
	EngineCPU float64 `json:"engine_cpu"` // µs of PostgreSQL, or of the coordinator, for each request
	WorkerCPU float64 `json:"worker_cpu"` // µs of all workers for each request
	Bytes     float64 `json:"bytes"`      // written for each request
	RSSStart  float64 `json:"rss_start"`  // MiB, as are the two below
	RSS       float64 `json:"rss"`
	Peak      float64 `json:"peak"`
	Body      float64 `json:"body"`     // MB/s of response bodies
	Beside    float64 `json:"beside"`   // creates/s of the connections that only create
	LoadCPU   float64 `json:"load_cpu"` // µs of the load process for each request
	Others    float64 `json:"others"`   // cores used by all other processes of the machine
	Stolen    float64 `json:"stolen"`   // cores that other virtual machines used
}

// coreRows are the service and the systems it is compared with.
func coreRows() []*row {
	rows := []*row{
		{Key: "ours", Title: "Plant Store", Base: "none", kind: product},
		{Key: "webhook", Title: "with a webhook endpoint", Base: "ours", kind: product, endpoint: true},
		{Key: "none", Title: "our HTTP stack, nothing stored", Base: "none", kind: noStore},
		{Key: "bare", Title: "bare handler, nothing stored", Base: "none", kind: bare},
		{Key: "single", Title: "one transaction for each request", Base: "none", kind: single},
		{Key: "pocketbase", Title: "PocketBase, its defaults", Base: "none", kind: pocketBase},
		{Key: "pocketbase-quiet", Title: "PocketBase without its request log", Base: "none", kind: pocketBaseQuiet},
	}
	return defaults(append(rows, editRows("ours", "", product)...))
}

// editRows follow the row of creates of the same engine in each round.
func editRows(base, engine string, kind kind) []*row {
	return []*row{
		{Key: base + "-replace", Title: "replace" + engine, Base: base, kind: kind, request: replace},
		{Key: base + "-remove", Title: "remove" + engine, Base: base, kind: kind, request: remove},
	}
}

func defaults(rows []*row) []*row {
	for _, r := range rows {
		r.conns, r.nameBytes = cmp.Or(r.conns, 64), cmp.Or(r.nameBytes, 10)
		r.request = cmp.Or(r.request, create)
	}
	return rows
}

// postgresRows run separately, so that the server's background work does not affect other rows.
func postgresRows() []*row {
	rows := []*row{
		{Key: "postgres", Title: "Plant Store on PostgreSQL", Base: "pgbench", kind: postgresProduct},
		{Key: "postgres-webhook", Title: "on PostgreSQL, with a webhook endpoint", Base: "postgres", kind: postgresProduct,
			endpoint: true},
		{Key: "pgbench", Title: "pgbench, inserts without HTTP", Base: "pgbench", kind: pgbench},
	}
	return defaults(append(rows, editRows("postgres", " on PostgreSQL", postgresProduct)...))
}

// readRows compare the service with others that read the same plants. Their ratios are to the service on SQLite.
func readRows() []*row {
	contenders := []struct {
		key, title string
		kind       kind
	}{
		{"", "Plant Store", product}, {"-bare", "bare handler", bare}, {"-pocketbase", "PocketBase", pocketBase},
		{"-postgres", "Plant Store on PostgreSQL", postgresProduct}, {"-pgbench", "pgbench", pgbench},
	}
	var rows []*row
	add := func(key, title string, like row) {
		for _, c := range contenders {
			if c.kind == bare && (like.request != get || like.creators > 0) {
				continue
			}
			r := like
			r.Key, r.Title, r.Base, r.kind = key+c.key, title+": "+c.title, key, c.kind
			rows = append(rows, &r)
		}
	}
	for _, q := range []struct {
		key, title string
		row
	}{
		{"get", "get", row{request: get}},
		{"list-100", "list of 100", row{request: list, limit: 100}},
		{"list-1000", "list of 1000", row{request: list, limit: 1000}},
		{"mixed", "90% get, 10% create", row{request: mixed}},
	} {
		for _, conns := range []int{1, 64, 1024} {
			q.conns = conns
			add(fmt.Sprintf("%s-%d", q.key, conns), q.title+", "+plural(conns, "connection"), q.row)
		}
	}
	add("get-busy", "get, 64 connections, and create on 64 others", row{request: get, creators: 64})
	cores, problem := separateCores()
	for _, like := range []row{
		{Key: "get-apart", Title: "get", Base: "get-64", request: get},
		{Key: "mixed-apart", Title: "90% get, 10% create", Base: "mixed-64", request: mixed},
	} {
		like.Title += ", 64 connections, service and load on separate cores"
		like.cores, like.skipped = cores, problem
		rows = append(rows, &like)
	}
	return defaults(rows)
}

// separateCores returns one core for the service and one for the load, or why there are none.
func separateCores() (cores []string, problem string) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, err.Error()
	}
	for cpu := 0; len(cores) < 2; cpu++ {
		if cpu == 8*int(unsafe.Sizeof(allowed)) {
			return nil, "it needs two cores"
		}
		if allowed.IsSet(cpu) {
			cores = append(cores, strconv.Itoa(cpu))
		}
	}
	if _, err := exec.LookPath("taskset"); err != nil {
		return nil, err.Error()
	}
	return cores, ""
}

// minuteRows run for a minute each, to find responses that take long.
func minuteRows(preload int64) []*row {
	many := thousands(float64(preload))
	return defaults([]*row{
		{Key: "minute", Title: "ascending ids, empty store", kind: product},
		{Key: "minute-full", Title: "ascending ids, store with " + many + " plants", kind: product, full: true},
		{
			Key: "minute-random", Title: "random ids, the same store", Base: "minute-full", kind: product, full: true,
			scattered: true,
		},
		{Key: "minute-1k", Title: "names of 1 KB", kind: product, nameBytes: 1 << 10},
		{
			Key: "minute-random-1k", Title: "random ids and names of 1 KB", kind: product, nameBytes: 1 << 10,
			scattered: true,
		},
		{Key: "minute-32k", Title: "names of 32 KB", kind: product, nameBytes: 32 << 10},
	})
}

// citusRows compare a Citus cluster with one PostgreSQL server. All its nodes share this machine.
func citusRows() []*row {
	rows := []*row{{Key: "citus-none", Title: "one PostgreSQL server", Base: "citus-none", kind: citus}}
	for _, by := range []string{"id", "store"} {
		for n := 1; n <= maxWorkers; n++ {
			rows = append(rows, &row{
				Key: fmt.Sprintf("citus-%s-%d", by, n), Title: fmt.Sprintf("Citus by %s, %s", by, plural(n, "worker")),
				Base: "citus-none", kind: citus, workers: n, by: by,
			})
		}
	}
	rows = append(rows,
		&row{Key: "walk-none", Title: "read all plants of one PostgreSQL server", Base: "walk-none", kind: walk},
		&row{Key: "walk-id", Title: "the same, Citus by id", Base: "walk-none", kind: walk, workers: 2, by: "id"},
		&row{Key: "walk-store", Title: "the same, Citus by store", Base: "walk-none", kind: walk, workers: 2, by: "store"})
	return defaults(rows)
}

// conditionRows run the service under other conditions.
func conditionRows(preload int64) []*row {
	var rows []*row
	add := func(key, title, base string, change func(*row)) {
		r := &row{Key: key, Title: title, Base: base, kind: product}
		change(r)
		rows = append(rows, r)
	}
	add("single-1", "single transactions, 1 connection", "conns-1", func(r *row) { r.kind, r.conns = single, 1 })
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
	return defaults(rows)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
