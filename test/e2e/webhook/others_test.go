package webhook

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// command runs a command of the product that must succeed.
func command(t *testing.T, args ...string) {
	t.Helper()
	if _, stderr, code := testkit.Run(t, nil, args...); code != 0 {
		t.Fatalf("plantstore %q: exit %d, %s", args, code, stderr)
	}
}

// wantDisabled checks that an endpoint of a database is disabled for a reason, and gets no new deliveries.
func wantDisabled(t *testing.T, db string, e endpoint, reason string) {
	t.Helper()
	s := start(t, db)
	all := call[[]endpoint](t, s.Target(), "GET", "/webhooks", "", 200)
	i := slices.IndexFunc(all, func(other endpoint) bool { return other.ID == e.ID })
	if i < 0 || !all[i].Disabled || all[i].Reason != reason || all[i].Kind != e.Kind {
		t.Errorf("the endpoints are %+v, want %s disabled with %q", all, e.ID, reason)
		return
	}
	before := plantsOf(t, s.Target(), e)
	create(t, s.Target(), 1000)
	if got := plantsOf(t, s.Target(), e); !slices.Equal(got, before) {
		t.Errorf("deliveries of the plants %v, want %v", got, before)
	}
	s.Stop()
}

// Imported plants are delivered. A restore and a copy keep endpoints, disabled. A copy adds no deliveries for endpoints
// of its target.
func TestImportRestoreCopy(t *testing.T) {
	t.Parallel()
	db, r := testkit.Engines[0].Database(t), newReceiver(t)
	s := start(t, db)
	e := add(t, s.Target(), r)
	testkit.Fill(t, s.Target(), 20, "Fern")
	r.waitFor("20 deliveries", func() bool { return len(r.received) >= 20 })
	r.respond(0, 503)
	create(t, s.Target(), 20) // waits, also in the backup
	file, restored := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored.db")
	command(t, "backup", "--db", db, "--to", file)
	command(t, "restore", file, "--db", restored)
	s.Stop()
	called := len(r.plants())
	r.respond(0, 200)
	wantDisabled(t, restored, e, "the database was restored from a backup")
	for _, engine := range testkit.Engines {
		t.Run(engine.Name, func(t *testing.T) {
			to := engine.Database(t)
			target := start(t, to)
			there := call[endpoint](t, target.Target(), "POST", "/webhooks", `{"kind":"pull"}`, 201)
			target.Stop()
			command(t, "copy", "--from", db, "--to", to)
			wantDisabled(t, to, e, "the database is a copy")
			if got := rows(t, to, "main"); got != "2 endpoints, 1 events, 1 deliveries" { // of plant 1000
				t.Errorf("the target has %s", got)
			}
			if got := call[endpoint](t, start(t, to).Target(), "GET", "/webhooks/"+there.ID, "", 200); got.Disabled {
				t.Errorf("the endpoint of the target is %+v", got)
			}
		})
	}
	if got := len(r.plants()); got != called {
		t.Errorf("the receiver was called about %d plants", got-called)
	}
}

// A store is removed with its endpoints, whose deliveries the service removes.
func TestStoreRemove(t *testing.T) {
	t.Parallel()
	testkit.OnEachDatabase(t, func(t *testing.T, db string) {
		s := start(t, db)
		token := testkit.IssueToken(t, db, "--name", "x", "--store", "x", "--scopes", "plants:create,webhooks:manage")
		to := testkit.Target{URL: s.URL, Token: token}
		call[endpoint](t, to, "POST", "/webhooks", `{"kind":"pull"}`, 201)
		kept := call[endpoint](t, s.Target(), "POST", "/webhooks", `{"kind":"pull"}`, 201)
		create(t, to, 1)
		create(t, s.Target(), 1)
		if got := rows(t, db, "x"); got != "1 endpoints, 1 events, 1 deliveries" {
			t.Errorf("before, the store has %s", got)
		}
		command(t, "store", "remove", "x", "--yes", "--db", db)
		testkit.WaitFor(t, "the deliveries of a store to be removed", func() bool {
			return rows(t, db, "x") == "1 endpoints, 0 events, 0 deliveries"
		})
		if got := plantsOf(t, s.Target(), kept); !slices.Equal(got, []int64{1}) {
			t.Errorf("another store has deliveries of the plants %v", got)
		}
		if !testing.Short() {
			waitRows(t, db, "x")
		}
	})
}

// waitRows waits until a store has no endpoints and deliveries. It takes over a minute: see storage.ForgetAfter.
func waitRows(t *testing.T, db, store string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		got := rows(t, db, store)
		if got == "0 endpoints, 0 events, 0 deliveries" {
			return
		} else if time.Since(began) > 5*testkit.Deadline {
			t.Fatalf("there are still %s", got)
		}
	}
}

// An endpoint of a sandbox gets new plants, not those of the seed. What is delivered is removed, and with the sandbox
// all else.
func TestSandbox(t *testing.T) {
	t.Parallel()
	testkit.OnEachDatabase(t, testSandbox)
}

func testSandbox(t *testing.T, db string) {
	s := start(t, db, "--sandbox")
	box := call[struct{ Store, Token string }](t, testkit.Target{URL: s.URL}, "POST", "/sandboxes", "", 201)
	to := testkit.Target{URL: s.URL, Token: box.Token}
	e := call[endpoint](t, to, "POST", "/webhooks", `{"kind":"pull"}`, 201)
	if got := rows(t, db, box.Store); got != "1 endpoints, 0 events, 0 deliveries" {
		t.Errorf("after the seed, there are %s", got)
	}
	create(t, to, 99)
	type pulled struct{ Deliveries []struct{ ID, Body string } }
	var d pulled
	for range 2 { // The same one, until it is acknowledged.
		d = call[pulled](t, to, "GET", "/webhooks/"+e.ID+"/pull?wait=20", "", 200)
		if len(d.Deliveries) != 1 || d.Deliveries[0].Body != plant(99) {
			t.Fatalf("the deliveries are %+v", d)
		}
	}
	call[any](t, to, "POST", "/webhooks/"+e.ID+"/ack", `{"ids":["`+d.Deliveries[0].ID+`"]}`, 204)
	testkit.WaitFor(t, "what a sandbox has delivered to be removed", func() bool {
		return rows(t, db, box.Store) == "1 endpoints, 0 events, 0 deliveries"
	})
	for _, bad := range []string{"x%00", "%ff"} { // PostgreSQL can't compare them
		call[any](t, to, "POST", "/webhooks/"+e.ID+"/deliveries/"+bad+"/replay", "", 404)
	}
	create(t, to, 100)
	call[any](t, to, "DELETE", "/sandbox", "", 204)
	if !testing.Short() {
		waitRows(t, db, box.Store)
	}
}

// Metrics count requests to receivers by their result, and have the age of the oldest waiting delivery. Neither metrics
// nor the log have a secret.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s, r := start(t, testkit.Engines[0].Database(t), "--access-log", "all"), newReceiver(t)
	e := add(t, s.Target(), r)
	create(t, s.Target(), 1)
	r.wait(1)
	r.respond(0, 503)
	create(t, s.Target(), 2)
	metrics := ""
	for text, has := range map[string]bool{
		`plantstore_webhook_tries_total{result="delivered"} 1`: true,
		`plantstore_webhook_tries_total{result="status"} `:     true,
		"plantstore_webhook_oldest_waiting_seconds 0\n":        false,
	} {
		testkit.WaitFor(t, "a metric", func() bool {
			_, metrics = s.Health(t, "/metrics")
			return strings.Contains(metrics, text) == has
		})
	}
	rotated := call[endpoint](t, s.Target(), "POST", "/webhooks/"+e.ID+"/rotate", "", 200)
	call[endpoint](t, s.Target(), "GET", "/webhooks/"+e.ID, "", 200)
	s.Stop()
	for _, secret := range []string{e.Secret, rotated.Secret} {
		if secret == "" || strings.Contains(metrics+s.Stderr.String(), secret[len("whsec_"):]) {
			t.Errorf("the secret %q is empty, or metrics or the log have it", secret)
		}
	}
}

// addWaiting adds waiting deliveries of an endpoint to a database.
func addWaiting(t *testing.T, db, store, endpoint string, n int) {
	t.Helper()
	testkit.Query(t, db, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %[1]d)
		INSERT INTO events (id, store, plant, body)
			SELECT 'msg_' || (1000000000 + i) || '0123456789ABCDEF', '%[2]s', i, '{"id":' || i || ',"name":"Fern"}'
			FROM n;
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %[1]d)
		INSERT INTO deliveries (webhook, status, event, due, bytes, log)
			SELECT '%[3]s', 'waiting', 'msg_' || (1000000000 + i) || '0123456789ABCDEF', 0, 24, '' FROM n`,
		n, store, endpoint))
}

// A cluster has no webhooks.
func TestCitus(t *testing.T) {
	for _, engine := range testkit.AllEngines[len(testkit.Engines):] {
		t.Run(engine.Name, func(t *testing.T) {
			a, err := start(t, engine.Database(t)).Send("POST", "/webhooks", `{"url":"https://plants.example/hook"}`)
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantError(t, "an endpoint in a cluster", a, 50102)
		})
	}
}

// A million waiting deliveries need no more memory than a thousand.
func TestMemory(t *testing.T) {
	testkit.Long(t)
	testkit.NotWithRace(t)
	var peak []int64
	for _, n := range []int{1000, 1_000_000} {
		db, r := testkit.Engines[0].Database(t), newReceiver(t)
		s := start(t, db)
		e := add(t, s.Target(), r)
		s.Stop()
		addWaiting(t, db, "main", e.ID, n)
		r.respond(hanging, 200)
		s = start(t, db)
		r.waitInFlight()
		call[[]delivery](t, s.Target(), "GET", "/webhooks/"+e.ID+"/deliveries", "", 200)
		r.respond(time.Millisecond, 200)
		r.wait(100)
		peak = append(peak, s.Memory(t, "VmHWM"))
		s.Kill()
	}
	t.Logf("%d MiB with 1,000 and %d MiB with 1,000,000 waiting deliveries", peak[0]>>20, peak[1]>>20)
	if peak[1]-peak[0] > 30<<20 {
		t.Errorf("1,000,000 waiting deliveries need %d MiB more", (peak[1]-peak[0])>>20)
	}
}
