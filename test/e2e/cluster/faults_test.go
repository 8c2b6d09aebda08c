//go:build linux

package cluster

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

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
			s := x.service
			probes := x.newProbes()
			long := x.workerOf("main")
			for round := range *rounds {
				for i, worker := range x.cluster.Workers[:2] {
					kill := fault{fmt.Sprintf("worker %d is killed", i), worker.Kill9, worker.Start, i == long}
					x.cause(kill, s, probes[i], probes[1-i])
				}
				i := round % 2
				worker := x.cluster.Workers[i]
				hang := fault{fmt.Sprintf("worker %d hangs", i), worker.Suspend, worker.Resume, false}
				x.cause(hang, s, probes[i], probes[1-i])
				x.killCoordinator(s)
			}
			x.rebalance(s)
			t.Log("in total: ", x.total)
			if x.total.Acked < 500 || x.total.Refused < 50 {
				t.Error("too few requests to detect anything")
			}
		})
	}
}

// fault is a fault of a worker.
type fault struct {
	what       string
	begin, end func() error
	long       bool // longer than the service repeats a create, so that clients get errors
}

// cause causes a fault under load.
func (x *trial) cause(f fault, s *testkit.Server, faulty, healthy *probe) {
	x.t.Helper()
	x.load()
	before := x.Failed()
	testkit.Must(x.t, f.begin)()
	name := fmt.Sprintf("worker 127.0.0.1:%d does not respond", x.cluster.Workers[faulty.worker].Port)
	testkit.WaitFor(x.t, "/readyz to name the worker", func() bool {
		status, body := s.Health(x.t, "/readyz")
		return status == 503 && strings.Contains(body, name)
	})
	stop := faulty.read(s)
	defer stop()
	again := testkit.StartAgain(x.t, s, x.db, "--access-log", "off") // also while a worker does not respond
	defer again.Kill()
	healthy.want(again, 20)
	healthy.want(s, 20)
	testkit.WaitFor(x.t, "errors of the ledger", func() bool { return !f.long || x.Failed() >= before+clients })
	testkit.Must(x.t, f.end)()
	stop()
	x.recovered(s, f.what)
}

func (x *trial) killCoordinator(s *testkit.Server) {
	x.t.Helper()
	x.load()
	testkit.Must(x.t, x.cluster.Kill9)()
	s.WaitReady(x.t, false)
	testkit.Must(x.t, x.cluster.Start)()
	x.recovered(s, "the coordinator is killed")
}

// recovered waits until the service has recovered from a fault, and verifies the ledger.
func (x *trial) recovered(s *testkit.Server, what string) {
	x.t.Helper()
	s.WaitReady(x.t, true)
	x.Wait(x.t, some)
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
