//go:build linux

package cluster

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/internal/testkit"
)

// Two services on two nodes serve one store. Each is killed and started again under load, and then the worker under one
// of them is killed. No 200 is lost, and the service on the other node continues.
func TestServicesOnTwoNodes(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, test := range []struct {
		name, by string
		nodes    [2]int // 0 is the coordinator
	}{
		{"coordinator and worker, by id", "id", [2]int{0, 2}},
		{"two workers, by store", "store", [2]int{1, 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			x := newTrial(t, test.by, 0)
			urls := [2]string{}
			for i, node := range test.nodes {
				urls[i] = x.cluster.Nodes()[node].URL(x.name)
				x.serve(urls[i], "--listen", testkit.FreeAddress(t))
			}
			x.load()
			for _, i := range []int{0, 1, 0} {
				x.serves[i].Kill()
				x.Wait(x.t, some)
				x.restart(i, urls[i])
				x.Wait(x.t, some)
			}
			x.verify("services are killed")
			x.restartNode(test.nodes[1])
			x.verify("the worker under one of them is killed")
			t.Log("in total: ", x.total)
		})
	}
}

// restart starts a killed service again at its address.
func (x *trial) restart(i int, db string) {
	x.t.Helper()
	address := strings.TrimPrefix(x.serves[i].URL, "http://")
	x.serves[i] = testkit.StartFixed(x.t, db, "--access-log", "off", "--listen", address)
}

// restartNode kills the worker of the second service under load and starts it again.
func (x *trial) restartNode(node int) {
	x.t.Helper()
	x.load()
	worker := x.cluster.Nodes()[node]
	testkit.Must(x.t, worker.Kill9)()
	x.serves[1].WaitReady(x.t, false)
	body := x.serves[0].WaitReady(x.t, false)
	if name := fmt.Sprintf("worker 127.0.0.1:%d does not respond", worker.Port); !strings.Contains(body, name) {
		x.t.Errorf("/readyz = %s, want %s", body, name)
	}
	testkit.Must(x.t, worker.Start)()
	for _, s := range x.serves {
		s.WaitReady(x.t, true)
	}
	x.Wait(x.t, some)
}
