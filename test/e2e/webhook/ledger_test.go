package webhook

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
}

// Whatever is killed under load, each plant that is stored arrives at the receiver under one webhook-id, and nothing
// else does. A delivery that has failed during a fault is replayed, because its next try may be minutes later.
func TestLedger(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		x := &trial{t: t, db: testkit.Engines[0].Database(t)}
		x.run(1, x.killReceiver, x.killProcess, x.killProcess, x.killProcess, x.killProcess, x.stopProcess)
	})
	t.Run("postgres with three processes", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Start(t, nil)
		x := &trial{t: t, db: server.Database(t), database: server}
		x.run(3, x.killReceiver, x.killProcess, x.killDatabase, x.killAll, x.stopProcess, x.killDatabase)
	})
}

// run causes faults: in make test those, in make test-all many of them, in a random order.
func (x *trial) run(processes int, faults ...func()) {
	x.Ledger, x.receiver = ledger.New(), newReceiver(x.t)
	for range processes {
		x.processes = append(x.processes, start(x.t, x.db))
	}
	e := add(x.t, x.processes[0].Target(), x.receiver)
	time.Sleep(2 * time.Second) // until every process knows the endpoint
	x.receiver.respond(20*time.Millisecond, 200)
	if !testing.Short() {
		faults = slices.Repeat(faults, 5)
		rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	}
	for i, fault := range faults {
		if !testing.Short() && i%2 == 0 {
			x.receiver.waitInFlight() // A delivery after a kill needs the time of the lease.
		}
		x.underLoad(fault)
	}
	to := x.processes[0].Target()
	x.CheckMany(x.t, to)
	x.settle(to, e)
}

// underLoad causes a fault while clients create plants, and starts what was killed.
func (x *trial) underLoad(fault func()) {
	x.t.Helper()
	var targets []testkit.Target
	for _, s := range x.processes {
		targets = append(targets, s.Target())
	}
	stop := x.Start(x.t, ledger.Options{Clients: 4}, targets...)
	x.Wait(x.t, 15)
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

func (x *trial) killAll() {
	for _, s := range x.processes {
		s.Kill()
	}
}

func (x *trial) stopProcess() { x.processes[rand.N(len(x.processes))].Stop() }

func (x *trial) killReceiver() {
	x.receiver.waitInFlight()
	x.receiver.kill()
	time.Sleep(rand.N(200 * time.Millisecond))
	x.receiver.start()
}

func (x *trial) killDatabase() {
	testkit.Must(x.t, x.database.Kill9)()
	testkit.Must(x.t, x.database.Start)()
	for _, s := range x.processes {
		s.WaitReady(x.t, true)
	}
}

// settle waits until everything is delivered, as long as there is progress, and compares it with what is stored.
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

// compare compares the plants that are stored, their deliveries, and what the receiver has received.
func (x *trial) compare(stored map[int64]string, all []delivery) {
	x.t.Helper()
	made, received, repeated := map[int64]string{}, x.receiver.plants(), 0
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, d := range all {
		if stored[d.Plant] == "" || made[d.Plant] != "" {
			problem("plant %d has the deliveries %s, %s, and is stored as %q", d.Plant, d.ID, made[d.Plant], stored[d.Plant])
		}
		made[d.Plant] = d.ID
	}
	for id, body := range stored {
		got := received[id]
		if repeated += got.times - 1; got.body != body || len(got.ids) != 1 || got.ids[0] != made[id] {
			problem("plant %d arrived as %q with the ids %v; it is stored as %q and its delivery is %q", id, got.body, got.ids,
				body, made[id])
		}
	}
	for id, got := range received {
		if stored[id] == "" {
			problem("plant %d arrived as %s and is not stored", id, got.body)
		}
	}
	for _, text := range problems[:min(len(problems), 10)] {
		x.t.Error(text)
	}
	x.t.Logf("%d problems, %d deliveries arrived again", len(problems), repeated)
}
