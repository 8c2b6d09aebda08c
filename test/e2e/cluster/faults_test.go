//go:build linux

// Package cluster tests the service on a Citus cluster whose nodes are killed, hang, and are added under load.
package cluster

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

var rounds = flag.Int("rounds", 1, "how often TestFaults causes each fault of a node")

// Nodes are killed, hang and are added under load. No 200 is lost, nothing that was refused is stored, plants on the
// other worker can be created meanwhile, and afterwards every request works again without a restart of the service.
func TestFaults(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, by := range []string{"id", "store"} {
		t.Run("by "+by, func(t *testing.T) {
			t.Parallel()
			x := newTrial(t, by)
			probes := []*probe{x.newProbe(0), x.newProbe(1)}
			failing := 0 // a worker with plants of the ledger
			if len(x.plantsOn(0, "main")) == 0 {
				failing = 1
			}
			for round := range *rounds {
				for i, worker := range x.cluster.Workers[:2] {
					x.causeOn(probes[i], probes[1-i], worker.Kill9, worker.Start, i == failing)
				}
				i := round % 2
				x.causeOn(probes[i], probes[1-i], x.cluster.Workers[i].Suspend, x.cluster.Workers[i].Resume, false)
				x.underLoad("the coordinator is killed", func() {
					testkit.Must(t, x.cluster.Kill9)()
					x.service.WaitReady(t, false)
					testkit.Must(t, x.cluster.Start)()
				})
			}
			x.underLoad("a worker is added and shards are moved", x.rebalance)
			if t.Log("in total: ", x.total); x.total.Acked < 500 || x.total.Refused < 50 {
				t.Error("too few requests to detect anything")
			}
		})
	}
}

// trial is a cluster, a service on its coordinator and the ledger of its clients.
type trial struct {
	*ledger.Ledger
	t        *testing.T
	cluster  *pgtest.Cluster
	db, name string // the URL of the database on the coordinator, and its name
	by       string // the column by which plants are distributed
	service  *testkit.Server
	total    ledger.Report
}

// newTrial starts a cluster with two workers and a spare server, distributes a database by a column, and serves it.
func newTrial(t *testing.T, by string) *trial {
	t.Helper()
	c := pgtest.StartCluster(t, 3, map[string]string{"citus.recover_2pc_interval": "5s"}) // not a minute
	all := c.Workers
	c.Workers = all[:2]
	db := testkit.Distributed(t, c, by)
	c.Workers = all // so that all are removed
	return &trial{Ledger: ledger.New(), t: t, cluster: c, by: by, db: db, name: pgtest.Name(db),
		service: testkit.StartFixed(t, db, "--access-log", "off")}
}

const (
	clients = 16
	some    = 50 // acknowledgements before and after a fault
)

// underLoad causes a fault and ends it while clients create, repeat, read, replace and remove plants. It waits until
// the service has recovered, compares what is stored with the ledger, and waits until no node has a prepared
// transaction, whose locks would block others.
func (x *trial) underLoad(what string, cause func()) {
	x.t.Helper()
	stop := x.Start(x.t, ledger.Options{Clients: clients, Edits: true}, x.service.Target())
	x.Wait(x.t, some)
	cause()
	x.service.WaitReady(x.t, true)
	x.Wait(x.t, some)
	stop()
	x.t.Log(what)
	x.total.Add(x.Check(x.t, x.service.Target()))
	testkit.WaitFor(x.t, "no node to have a prepared transaction", func() (none bool) {
		none = true
		for _, node := range x.cluster.Nodes() {
			const prepared = "SELECT 1 FROM pg_prepared_xacts WHERE database = '%s'"
			none = none && len(node.Query(x.t, "postgres", fmt.Sprintf(prepared, x.name))) == 0
		}
		return none
	})
}

// causeOn causes a fault of a worker, while plants of the worker are read without pause. If fails is set, it lasts
// longer than the service repeats a create, so that clients get errors.
func (x *trial) causeOn(faulty, healthy *probe, begin, end func() error, fails bool) {
	x.t.Helper()
	name := fmt.Sprintf("worker 127.0.0.1:%d does not respond", faulty.port)
	x.underLoad(name, func() {
		before := x.Failed()
		testkit.Must(x.t, begin)()
		testkit.WaitFor(x.t, "/readyz to name the worker", func() bool {
			status, body := x.service.Health(x.t, "/readyz")
			return status == 503 && strings.Contains(body, name)
		})
		stop := faulty.read(x.service)
		defer stop()
		again := testkit.StartAgain(x.t, x.service, x.db, "--access-log", "off") // also while a worker does not respond
		defer again.Kill()
		healthy.wantCreates(again)
		healthy.wantCreates(x.service)
		testkit.WaitFor(x.t, "errors of the ledger", func() bool { return !fails || x.Failed() >= before+clients })
		testkit.Must(x.t, end)()
	})
}

// rebalance adds the spare server as a worker and moves shards to it.
func (x *trial) rebalance() {
	x.t.Helper()
	spare := x.cluster.Workers[2]
	spare.Exec(x.t, "CREATE DATABASE "+x.name)
	spare.Query(x.t, x.name, "CREATE EXTENSION citus")
	for _, sql := range []string{
		fmt.Sprintf("SELECT citus_add_node('127.0.0.1', %d)", spare.Port),
		"SELECT citus_rebalance_start(shard_transfer_mode := 'force_logical')",
	} {
		x.cluster.Query(x.t, x.name, sql)
	}
	for try := 0; ; try++ { // A statement has a minute.
		if _, err := x.cluster.Attempt(x.name, "SELECT citus_rebalance_wait()"); err == nil {
			break
		} else if try == 4 {
			x.t.Fatal(err)
		}
	}
	moved := x.cluster.Query(x.t, x.name, fmt.Sprintf(
		"SELECT 1 FROM pg_dist_shard_placement WHERE nodeport = %d", spare.Port))
	if len(moved) == 0 {
		x.t.Error("no shard was moved to the new worker")
	}
}

// probe uses plants whose shards are all on one worker, with a token that is looked up in the database.
type probe struct {
	t     *testing.T
	port  int // of the worker
	token string
	ids   []string // that were not created yet
}

func (x *trial) newProbe(worker int) *probe {
	x.t.Helper()
	p := &probe{t: x.t, port: x.cluster.Workers[worker].Port}
	var store string
	for n := 0; len(p.ids) == 0; n++ {
		store = fmt.Sprint("probe-", n)
		p.ids = x.plantsOn(worker, store)
	}
	p.token = testkit.IssueToken(x.t, x.db, "--name", fmt.Sprint("probe-", worker), "--store", store)
	return p
}

// plantsOn returns the ids of plants of a store whose shards are on a worker.
func (x *trial) plantsOn(worker int, store string) (ids []string) {
	x.t.Helper()
	column := map[string]string{"id": "i", "store": "'" + store + "'::text"}[x.by]
	for _, row := range x.cluster.Query(x.t, x.name, fmt.Sprintf(`
		SELECT i FROM generate_series(1::bigint, 1000) AS i
		JOIN pg_dist_shard_placement ON shardid = get_shard_id_for_distribution_column('plants', %s)
		WHERE nodeport = %d`, column, x.cluster.Workers[worker].Port)) {
		ids = append(ids, row[0])
	}
	return ids
}

// wantCreates creates plants one after the other, for so long that the token is looked up again.
func (p *probe) wantCreates(s *testkit.Server) {
	p.t.Helper()
	const least, lookedUp = 20, 3 * time.Second
	to := testkit.Target{URL: s.URL, Token: p.token}
	created, failures := 0, map[int]int{}
	start := time.Now()
	testkit.WaitFor(p.t, "creates on a worker while the other one has a fault", func() bool {
		a, err := to.Send("POST", "/plants", fmt.Sprintf(`{"id":%s,"name":"probe"}`, p.ids[0]))
		switch {
		case err == nil && a.Status == 200:
			p.ids = p.ids[1:]
			created++
		case err == nil && a.Status == 503:
			failures[a.Number()]++
		default:
			p.t.Fatalf("plant %s on the worker at port %d: %v %d %s", p.ids[0], p.port, err, a.Status, a.Body)
		}
		time.Sleep(50 * time.Millisecond)
		return created >= least && time.Since(start) > lookedUp
	})
	p.t.Logf("%d plants on the healthy worker took %v during the fault; failures %v", created, time.Since(start), failures)
}

// read reads a plant of the worker without pause until stop is called. The responses do not matter.
func (p *probe) read(s *testkit.Server) (stop func()) {
	to := testkit.Target{URL: s.URL, Token: p.token}
	end := make(chan struct{})
	var readers sync.WaitGroup
	for range clients {
		readers.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					to.Send("GET", "/plants/"+p.ids[0], "")
				}
			}
		})
	}
	return func() { close(end); readers.Wait() }
}
