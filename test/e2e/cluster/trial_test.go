//go:build linux

package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// trial is a cluster, a service on its coordinator and the ledger of its clients.
type trial struct {
	*ledger.Ledger
	t       *testing.T
	cluster *pgtest.Cluster
	db      string // the URL of the database on the coordinator
	name    string // of the database
	by      string // the column by which plants are distributed
	service *testkit.Server
	stop    func() // ends the clients

	total ledger.Report
}

// newTrial starts a cluster with two workers and a spare server, distributes a database by a column, and serves it.
func newTrial(t *testing.T, by string) *trial {
	t.Helper()
	c := pgtest.StartCluster(t, 3, nil)
	all := c.Workers
	c.Workers = all[:2]
	x := &trial{Ledger: ledger.New(), t: t, cluster: c, by: by, db: testkit.Distributed(t, c, by)}
	c.Workers = all // so that all are removed
	x.name = testkit.DatabaseName(t, x.db)
	x.service = testkit.StartFixed(t, x.db, "--access-log", "off")
	return x
}

const (
	clients = 16
	some    = 50 // acknowledgements before and after a fault
)

// load starts clients, which create, repeat, read, replace and remove plants.
func (x *trial) load() {
	x.t.Helper()
	x.stop = x.Start(x.t, ledger.Options{Clients: clients, Edits: true}, x.service.Target())
	x.Wait(x.t, some)
}

// verify ends the clients and compares what is stored with the ledger.
func (x *trial) verify(what string) {
	x.t.Helper()
	x.stop()
	x.t.Log(what)
	x.total.Add(x.Check(x.t, x.service.Target()))
	x.wantNothingPrepared()
}

// wantNothingPrepared waits until no node has a prepared transaction, whose locks would block others.
func (x *trial) wantNothingPrepared() {
	x.t.Helper()
	testkit.WaitFor(x.t, "no node to have a prepared transaction", func() bool {
		for _, node := range x.cluster.Nodes() {
			if len(node.Query(x.t, "postgres", "SELECT 1 FROM pg_prepared_xacts WHERE database = '"+x.name+"'")) > 0 {
				return false
			}
		}
		return true
	})
}

// probe creates plants whose shards are all on one worker, with a token that is looked up in the database.
type probe struct {
	x      *trial
	worker int
	token  string
	ids    []int64
	next   int
}

// newProbes returns a probe for each of the two workers. Each uses a store of its own, which the ledger does not.
func (x *trial) newProbes() (all [2]*probe) {
	x.t.Helper()
	for w := range all {
		p := &probe{x: x, worker: w}
		for n := 0; p.token == ""; n++ {
			storeName := fmt.Sprintf("probe-%d-%d", w, n)
			if p.ids = x.idsOn(w, storeName); len(p.ids) > 0 {
				p.token = testkit.IssueToken(x.t, x.db, "--name", storeName, "--store", storeName)
			}
		}
		all[w] = p
	}
	return all
}

// idsOn returns ids of plants of a store whose shards are on a worker.
func (x *trial) idsOn(worker int, storeName string) (ids []int64) {
	x.t.Helper()
	column := "i"
	if x.by == "store" {
		column = "'" + storeName + "'::text"
	}
	rows := x.cluster.Query(x.t, x.name, fmt.Sprintf(`
		SELECT i FROM generate_series(1::bigint, 1000) AS i
		JOIN pg_dist_shard_placement ON shardid = get_shard_id_for_distribution_column('plants', %s)
		WHERE nodeport = %d ORDER BY i`, column, x.cluster.Workers[worker].Port))
	for _, row := range rows {
		var id int64
		fmt.Sscan(row[0], &id)
		ids = append(ids, id)
	}
	return ids
}

// tokenChecked is a time in which a token is looked up again.
const tokenChecked = 3 * time.Second

// workerOf returns a worker that has plants of a store.
func (x *trial) workerOf(storeName string) int {
	x.t.Helper()
	if len(x.idsOn(0, storeName)) > 0 {
		return 0
	}
	return 1
}

// want creates plants one after the other, n of which must succeed.
func (p *probe) want(s *testkit.Server, n int) {
	t := p.x.t
	t.Helper()
	to := testkit.Target{URL: s.URL, Token: p.token}
	start, failures := time.Now(), map[int]int{}
	created := 0
	for ; created < n || time.Since(start) < tokenChecked; time.Sleep(50 * time.Millisecond) {
		id := p.ids[p.next]
		a, err := to.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"probe"}`, id))
		switch {
		case err == nil && a.Status == 200:
			p.next++
			created++
		case err == nil && a.Status == 503:
			failures[a.Number()]++
		default:
			t.Fatalf("plant %d on worker %d: %v %d %s", id, p.worker, err, a.Status, a.Body)
		}
		if time.Since(start) > testkit.Deadline {
			t.Fatalf("%d of %d plants on worker %d were created in %v, while the other one had a fault; failures %v",
				created, n, p.worker, testkit.Deadline, failures)
		}
	}
	t.Logf("%d plants on the healthy worker took %v during the fault; failures %v", created,
		time.Since(start).Round(time.Millisecond), failures)
}

// read reads plants of the worker without pause until the returned function is called. Their responses do not matter.
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
					to.Send("GET", fmt.Sprintf("/plants/%d", p.ids[0]), "")
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(end)
		readers.Wait()
	})
}
