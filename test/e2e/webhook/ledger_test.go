package webhook

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// trial is a service whose processes, database and receiver are killed under load.
type trial struct {
	*ledger.Ledger
	t         *testing.T
	db        string
	database  *pgtest.Server // nil on SQLite
	processes []*testkit.Server
	receiver  *receiver
	single    int64 // the last plant of waitDeliveries
}

// Whatever is killed under load, each stored plant arrives at the receiver with one webhook-id, and nothing else does.
// A delivery whose try fails during a fault is replayed, because its next try may be minutes later.
func TestLedger(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		x := &trial{t: t, db: testkit.Engines[0].Database(t)}
		x.run(1, x.killProcess, x.killProcess, x.killProcess, x.stopProcess)
	})
	t.Run("postgres with three processes", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Start(t, nil)
		x := &trial{t: t, db: server.Database(t), database: server}
		x.run(3, x.killProcess, x.killDatabase, x.stopProcess, x.killDatabase)
	})
}

// run causes faults: two while deliveries are in flight, and then the others in any order. After a kill, nothing is
// delivered until the lease ends. In make test-all, it does so six times.
func (x *trial) run(processes int, others ...func()) {
	x.Ledger, x.receiver = ledger.New(), newReceiver(x.t)
	x.processes = append(x.processes, start(x.t, x.db))
	e := add(x.t, x.processes[0].Target(), x.receiver)
	for range processes - 1 { // They know the endpoint.
		x.processes = append(x.processes, start(x.t, x.db))
	}
	x.receiver.respond(responseTime, 200)
	rounds := 1
	if !testing.Short() {
		rounds = 3
	}
	for range rounds {
		x.waitDeliveries()
		x.underLoad(x.killReceiver)
		x.waitDeliveries()
		x.underLoad(x.killInFlight)
		rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		for _, fault := range others {
			x.underLoad(fault)
		}
	}
	to := x.processes[0].Target()
	x.CheckMany(x.t, to)
	x.settle(to, e)
}

const responseTime = 20 * time.Millisecond

// waitDeliveries waits until plants arrive at the receiver.
func (x *trial) waitDeliveries() {
	x.t.Helper()
	before := len(x.receiver.plants())
	testkit.WaitFor(x.t, "deliveries", func() bool {
		x.single++
		x.Create(x.processes[0].Target(), x.single, "Fern")
		time.Sleep(2 * responseTime)
		return len(x.receiver.plants()) > before
	})
}

// underLoad causes a fault while clients create plants, and starts what was killed.
func (x *trial) underLoad(fault func()) {
	x.t.Helper()
	var targets []testkit.Target
	for _, s := range x.processes {
		targets = append(targets, s.Target())
	}
	stop := x.Start(x.t, ledger.Options{Clients: 4}, targets...)
	x.Wait(x.t, 20)
	time.Sleep(rand.N(5 * time.Millisecond))
	fault()
	stop()
	for i, s := range x.processes {
		if !s.Running() {
			x.processes[i] = start(x.t, x.db)
		}
	}
}

func (x *trial) killProcess() { x.processes[rand.N(len(x.processes))].Kill() }

func (x *trial) stopProcess() { x.processes[rand.N(len(x.processes))].Stop() }

// killReceiver kills the receiver once it has received something without a response.
func (x *trial) killReceiver() {
	before := x.receiver.dropped
	x.receiver.respond(responseTime, noResponse)
	x.receiver.waitFor("a request without a response", func() bool { return x.receiver.dropped > before })
	x.receiver.kill()
	x.receiver.respond(responseTime, 200)
	time.Sleep(rand.N(100 * time.Millisecond))
	x.receiver.start()
}

// killInFlight kills all processes while a request is in flight, which the receiver does not count as received.
func (x *trial) killInFlight() {
	x.receiver.respond(hanging, 200)
	x.receiver.waitInFlight()
	for _, s := range x.processes {
		s.Kill()
	}
	x.receiver.respond(responseTime, 200)
}

func (x *trial) killDatabase() {
	testkit.Must(x.t, x.database.Kill9)()
	testkit.Must(x.t, x.database.Start)()
	for _, s := range x.processes {
		s.WaitReady(x.t, true)
	}
}

// settle waits until everything is delivered, while there is progress, and compares it with the stored plants.
func (x *trial) settle(to testkit.Target, e endpoint) {
	x.t.Helper()
	began, progress, before := time.Now(), time.Now(), 0
	var all []delivery
	for {
		all = deliveries(x.t, to, e)
		waiting := 0
		for _, d := range all {
			if d.Status == "delivered" {
				continue
			}
			if waiting++; d.Status == "waiting" && time.Until(d.Next) > 10*time.Second || d.Status == "failed" {
				call[delivery](x.t, to, "POST", "/webhooks/"+e.ID+"/deliveries/"+d.ID+"/replay", "", 202)
			}
		}
		if waiting == 0 {
			break
		}
		if before != waiting {
			before, progress = waiting, time.Now()
		} else if time.Since(progress) > testkit.Deadline {
			x.t.Fatalf("%d of %d deliveries still wait", waiting, len(all))
		}
		time.Sleep(200 * time.Millisecond)
	}
	stored, err := ledger.List(to)
	if err != nil {
		x.t.Fatal(err)
	}
	x.compare(stored, all)
	x.t.Logf("%d plants, all delivered %v after the faults", len(stored), time.Since(began).Round(time.Second/10))
}

// compare compares the stored plants, their deliveries, and what the receiver has received.
func (x *trial) compare(stored map[int64]string, all []delivery) {
	x.t.Helper()
	made, received, repeated := map[int64]string{}, x.receiver.plants(), 0
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, d := range all {
		if stored[d.Plant] == "" || made[d.Plant] != "" {
			problem("plant %d has the deliveries %s, %s, and is stored as %.100q", d.Plant, d.ID, made[d.Plant], stored[d.Plant])
		}
		made[d.Plant] = d.ID
	}
	for id, body := range stored {
		got := received[id]
		if repeated += max(0, got.times-1); got.body != body || len(got.ids) != 1 || got.ids[0] != made[id] {
			problem("plant %d is stored as %.99q and arrived as %.99q; its delivery is %q and arrived as %q", id, body, got.body,
				made[id], got.ids)
		}
	}
	for id, got := range received {
		if stored[id] == "" {
			problem("plant %d arrived as %.100q and is not stored", id, got.body)
		}
	}
	for _, text := range problems[:min(len(problems), 10)] {
		x.t.Error(text)
	}
	if x.t.Logf("%d problems, %d deliveries arrived again", len(problems), repeated); repeated == 0 {
		x.t.Error("no delivery arrived again, so their ids were not compared")
	}
}
