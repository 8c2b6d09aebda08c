package replicas

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// serve starts while a worker is down or hangs. /readyz names the worker, and plants on the other one are created.
func TestNodesOfCluster(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	c := pgtest.StartCluster(t, 2, nil)
	db := c.Database(t)
	if out, errs, code := testkit.Run(t, nil, "db", "distribute", "--db", db); code != 0 {
		t.Fatalf("db distribute: exit %d, %s%s", code, out, errs)
	}
	worker := c.Workers[1]
	name := fmt.Sprintf("worker 127.0.0.1:%d", worker.Port)
	p := testkit.Start(t, db)
	for i, test := range []struct {
		reason       string
		fail, repair func() error
	}{
		{"Connection refused", worker.Stop, worker.Start},
		{"could not establish connection after 1000 ms", worker.Suspend, worker.Resume},
	} {
		if err := test.fail(); err != nil {
			t.Fatal(err)
		}
		text := "not ready: the database is unavailable: " + name + " does not respond: " + test.reason + "\n"
		started := testkit.StartAgain(t, p, db)
		for _, s := range []*testkit.Server{p, started} {
			testkit.WaitFor(t, text, func() bool {
				status, body := s.Health(t, "/readyz")
				return status == 503 && body == text
			})
		}
		var created atomic.Int64
		var clients sync.WaitGroup
		for id := range 12 { // of about half of them, the shard is on the other worker
			clients.Go(func() {
				a, err := started.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, 100*i+id))
				if err != nil {
					t.Error(err)
				} else if a.Status == 200 {
					created.Add(1)
				}
			})
		}
		clients.Wait()
		if err := test.repair(); err != nil {
			t.Fatal(err)
		}
		if n := created.Load(); n < 2 {
			t.Errorf("%s: %d plants were created on the other worker", test.reason, n)
		}
		p.WaitReady(t, true)
		started.WaitReady(t, true)
	}
}
