package replicas

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// serve refuses a cluster with an unsafe worker, and starts while a worker is down or hangs. /readyz names the worker.
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
	database := testkit.DatabaseName(t, db)

	worker.Exec(t, "ALTER DATABASE "+database+" SET synchronous_commit = off")
	text := name + " runs with synchronous_commit=off, so plants can be lost after they were confirmed; " +
		"set it to on or, if that loss is acceptable, start with --unsafe-durability\n"
	_, errs, code := testkit.Run(t, nil, "serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "off")
	if code != 1 || !strings.HasSuffix(errs, text) {
		t.Errorf("serve: exit %d, %s\nwant 1, %s", code, errs, text)
	}
	out, errs, code := testkit.Run(t, nil, "doctor", "--db", db)
	if code != 1 || !strings.Contains(out, text) {
		t.Errorf("doctor: exit %d, %s%s\nwant 1, %s", code, out, errs, text)
	}
	p := testkit.Start(t, db, "--unsafe-durability")
	p.WaitReady(t, true)
	worker.Exec(t, "ALTER DATABASE "+database+" RESET synchronous_commit")

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
