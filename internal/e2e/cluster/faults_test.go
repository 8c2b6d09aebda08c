//go:build linux

package cluster

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// Nodes are killed, hang and are added under load. No 200 is lost, nothing that was refused is stored, plants on the
// other worker can be created meanwhile, and afterwards every request works again without a restart of the service.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"id", "store"} {
		t.Run("by "+by, func(t *testing.T) {
			t.Parallel()
			x := newTrial(t, by, 1)
			s := x.serve(x.db)
			probes := x.newProbes()
			for i, worker := range x.cluster.Workers[:2] {
				x.during(s, fmt.Sprintf("worker %d is killed", i), worker, probes[1-i], worker.Kill9, worker.Start)
			}
			hangs := x.cluster.Workers[0]
			x.during(s, "worker 0 hangs", hangs, probes[1], hangs.Suspend, hangs.Resume)
			x.load()
			testkit.Must(t, x.cluster.Kill9)()
			s.WaitReady(t, false)
			testkit.Must(t, x.cluster.Start)()
			x.recovered(s, "the coordinator is killed")
			x.rebalance(s)
			t.Log("in total: ", x.total)
			if x.total.Acks < 500 || x.total.Refused < 50 || x.total.Unknown == 0 {
				t.Error("too few requests to detect anything")
			}
		})
	}
}

// during causes a fault of a worker under load.
func (x *trial) during(
	s *testkit.Server, what string, worker *pgtest.Server, healthy *probe, begin, end func() error,
) {
	x.t.Helper()
	x.load()
	testkit.Must(x.t, begin)()
	name := fmt.Sprintf("worker 127.0.0.1:%d does not respond", worker.Port)
	testkit.WaitFor(x.t, "/readyz to name the worker", func() bool {
		status, body := s.Health(x.t, "/readyz")
		return status == 503 && strings.Contains(body, name)
	})
	healthy.want(s, 20)
	testkit.Must(x.t, end)()
	x.recovered(s, what)
}

// recovered waits until the service has recovered from a fault, and verifies the ledger.
func (x *trial) recovered(s *testkit.Server, what string) {
	x.t.Helper()
	s.WaitReady(x.t, true)
	x.wait()
	x.verify(what)
}

// rebalance adds the spare server as a worker and moves shards to it under load.
func (x *trial) rebalance(s *testkit.Server) {
	x.t.Helper()
	spare := x.cluster.Workers[2]
	spare.Exec(x.t, "CREATE DATABASE "+x.name)
	spare.Query(x.t, x.name, "CREATE EXTENSION citus")
	x.load()
	x.cluster.Query(x.t, x.name, fmt.Sprintf("SELECT citus_add_node('127.0.0.1', %d)", spare.Port))
	x.cluster.Query(x.t, x.name, "SELECT citus_rebalance_start(shard_transfer_mode := 'force_logical')")
	x.cluster.Query(x.t, x.name, "SELECT citus_rebalance_wait()")
	moved := x.cluster.Query(x.t, x.name, fmt.Sprintf(
		"SELECT count(*) FROM pg_dist_shard_placement WHERE nodeport = %d", spare.Port))
	if moved[0][0] == "0" {
		x.t.Error("no shard was moved to the new worker")
	}
	x.recovered(s, "a worker is added and shards are moved")
}
