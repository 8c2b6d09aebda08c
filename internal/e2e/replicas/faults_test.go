package replicas

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
	"plantstore/internal/testkit/proxy"
)

// traffic is clients that create plants until they are told to stop, and note in a ledger what they
// are told. A service in trouble may answer 503; whatever it answers must be true.
type traffic struct {
	*ledger
	t       *testing.T
	targets []testkit.Target
	cuts    bool // whether connections may break: of a service that is killed
	next    atomic.Int64
	numbers map[int]int // how often each was answered: 200, or a number of the catalogue
	end     chan struct{}
	clients sync.WaitGroup
}

// ledger is what a client knows of its plants: what it sent, and what it was told.
type ledger struct {
	mu      sync.Mutex
	sent    map[int64]plant.Plant // every plant that was sent in a valid request
	acked   map[int64]bool        // answered 200
	refused map[int64]bool        // sent in a body that was answered 400
}

func newLedger() *ledger {
	return &ledger{sent: map[int64]plant.Plant{}, acked: map[int64]bool{}, refused: map[int64]bool{}}
}

// check compares the ledger with what is stored and tells every difference.
func (l *ledger) check(t *testing.T, st store.Store) (lies []string) {
	t.Helper()
	stored := map[int64]plant.Plant{}
	for after := (*int64)(nil); ; {
		page, err := st.List(t.Context(), "main", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			stored[p.ID] = p.Plant
		}
		after = &page[len(page)-1].ID
	}
	for id := range l.acked {
		if p, ok := stored[id]; !ok {
			lies = append(lies, fmt.Sprintf("plant %d was answered 200 and is lost", id))
		} else if !p.Equal(l.sent[id]) {
			lies = append(lies, fmt.Sprintf("plant %d was answered 200 and is not as sent", id))
		}
	}
	for id, p := range stored {
		switch sent, ok := l.sent[id]; {
		case l.refused[id]:
			lies = append(lies, fmt.Sprintf("plant %d was refused and is stored", id))
		case !ok:
			lies = append(lies, fmt.Sprintf("plant %d was never sent and is stored", id))
		case !p.Equal(sent):
			lies = append(lies, fmt.Sprintf("plant %d is not as sent", id))
		}
	}
	return lies
}

const (
	trafficClients = 24
	notAnswered    = 0 // among the numbers
)

// drive starts the clients, which spread over the targets.
func drive(t *testing.T, cuts bool, targets ...testkit.Target) *traffic {
	t.Helper()
	tr := &traffic{ledger: newLedger(), t: t, targets: targets, cuts: cuts, numbers: map[int]int{}, end: make(chan struct{})}
	for n := range trafficClients {
		tr.clients.Go(func() { tr.client(n) })
	}
	t.Cleanup(tr.stop)
	return tr
}

func (tr *traffic) stop() {
	select {
	case <-tr.end:
	default:
		close(tr.end)
	}
	tr.clients.Wait()
}

func (tr *traffic) client(n int) {
	for {
		select {
		case <-tr.end:
			return
		default:
		}
		id := tr.next.Add(1)
		tag := "t"
		p := plant.Plant{Name: fmt.Sprintf("plant %d", id), Tag: &tag}
		body := fmt.Sprintf(`{"id":%d,"name":%q,"tag":"t"}`, id, p.Name)
		wrong := id%10 == 0
		if wrong {
			body = strings.Replace(body, `"t"`, "null", 1)
		} else {
			tr.mu.Lock()
			tr.sent[id] = p
			tr.mu.Unlock()
		}
		a, err := send(tr.targets[n%len(tr.targets)], body)
		if err != nil {
			if !tr.cuts {
				tr.t.Errorf("plant %d was not answered: %v", id, err)
				return
			}
			n++ // the outcome is not known; the next server may do better
			tr.mu.Lock()
			tr.numbers[notAnswered]++
			tr.mu.Unlock()
		}
		if err != nil || tr.note(id, wrong, a) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// note enters an answer into the ledger and reports whether it asks to wait.
func (tr *traffic) note(id int64, wrong bool, a testkit.Response) (wait bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	number := a.Status
	if a.Status != 200 {
		number = a.Number()
		testkit.WantError(tr.t, fmt.Sprintf("plant %d", id), a, number)
	}
	tr.numbers[number]++
	switch {
	case number == 200 && !wrong:
		tr.acked[id] = true
	case number/100 == 400 && wrong, number == 50301, number == 50303, number == 50305: // nothing was stored
		tr.refused[id] = true
	case number == 50302: // not known
	default:
		tr.t.Errorf("plant %d, wrong %v: answered %d %s", id, wrong, a.Status, a.Body)
	}
	if a.Status == 503 && a.Header.Get("Retry-After") == "" {
		tr.t.Errorf("plant %d: 503 without Retry-After", id)
	}
	return a.Status == 503
}

func send(to testkit.Target, body string) (testkit.Response, error) {
	return to.Send("POST", "/plants", body)
}

// count is a copy of how often each number was answered.
func (tr *traffic) count() map[int]int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return maps.Clone(tr.numbers)
}

// await waits until so many more creates have succeeded, and fails the test when that takes too long.
func (tr *traffic) await(more int, within time.Duration) {
	tr.t.Helper()
	start := time.Now()
	for before := tr.count()[200]; tr.count()[200] < before+more; time.Sleep(2 * time.Millisecond) {
		if time.Since(start) > within {
			tr.t.Fatalf("%d creates succeeded in %v, want %d", tr.count()[200]-before, within, more)
		}
	}
}

// settle ends the traffic and compares the ledger with what a database holds.
func (tr *traffic) settle(db string) (lies []string) {
	tr.t.Helper()
	tr.stop()
	lies = tr.check(tr.t, openDatabase(tr.t, db))
	tr.t.Logf("%d plants sent, %d answered 200, %d told that nothing was stored; answers: %v",
		len(tr.sent), len(tr.acked), len(tr.refused), tr.numbers)
	if len(tr.acked) < 100 || len(tr.refused) < 10 {
		tr.t.Errorf("%d plants answered 200 and %d refused are too few to show anything", len(tr.acked), len(tr.refused))
	}
	return lies
}

func (tr *traffic) wantClean(db string) {
	tr.t.Helper()
	if lies := tr.settle(db); len(lies) > 0 {
		tr.t.Errorf("%d lies, the first: %s", len(lies), lies[0])
	}
}

func openDatabase(t *testing.T, db string) store.Store {
	t.Helper()
	st, err := postgres.Open(t.Context(), db, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// serveFixed starts the product with a fixed token, which needs no database. Half of the traffic uses
// that, and half a token that is looked up.
func serveFixed(t *testing.T, db string, args ...string) (p *testkit.Server, targets []testkit.Target) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(testkit.FixedToken), 0o600); err != nil {
		t.Fatal(err)
	}
	stored := testkit.IssueToken(t, db, "--name", "stored")
	p = testkit.Start(t, db, append([]string{"--token-file", file}, args...)...)
	p.Token = testkit.FixedToken
	return p, []testkit.Target{{URL: p.URL, Token: testkit.FixedToken}, {URL: p.URL, Token: stored}}
}

const (
	calm        = 100              // creates that succeed before a fault, and after it
	healsWithin = 20 * time.Second // after a fault has ended: an attempt that began before may take 4 s
	noticed     = 8 * time.Second  // after a fault has begun: a statement gives up after 4 s

	mostMemory     = 200 << 20
	mostGoroutines = 3*trafficClients + 50
	mostFiles      = trafficClients + 50
	mostSessions   = 16 // at the database: the pool's default is 8, and as many may be about to close
)

// fault is something wrong with a database. Each of its two functions returns when it has happened.
type fault struct {
	begin, end func()
	lasts      time.Duration // after the service has said that it is not ready; 1 s where it is 0
	partial    bool          // the service may go on, so what it says of its readiness can't be foretold
}

// endure puts a fault between two calms and holds the service to its promises: it tells when it is not ready,
// it heals by itself, and what it uses is bounded. Then it ends the service and compares the ledger
// with the database on the server.
func endure(t *testing.T, p *testkit.Server, tr *traffic, server *pgtest.Server, database string, f fault) {
	t.Helper()
	tr.await(calm, 10*time.Second)
	wantReady(t, p, 200, 5*time.Second)
	f.begin()
	if !f.partial {
		wantReady(t, p, 503, noticed)
	}
	for begun := time.Now(); time.Since(begun) < max(f.lasts, time.Second); time.Sleep(10 * time.Millisecond) {
		if status, body := p.Health(t, "/readyz"); status != 503 && !f.partial {
			t.Errorf("/readyz during the fault = %d %q", status, body)
		}
	}
	f.end()
	ended := time.Now()
	tr.await(1, healsWithin)
	wantReady(t, p, 200, healsWithin-time.Since(ended))
	t.Logf("healed after %v", time.Since(ended).Round(time.Millisecond))
	tr.await(calm, 10*time.Second)
	tr.stop()
	wantSessions(t, server, database)
	wantBounded(t, p)
	tr.wantClean(server.URL(database))
}

// wantReady waits until /readyz has a status. Whenever it is not 200, the body says why.
func wantReady(t *testing.T, p *testkit.Server, want int, within time.Duration) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		status, body := p.Health(t, "/readyz")
		if status != 200 && (status != 503 || !regexp.MustCompile(`^not ready: \w+ \w+ .+\n$`).MatchString(body)) {
			t.Fatalf("/readyz = %d %q, want 503 and why", status, body)
		}
		if status == want {
			if want != 200 {
				t.Logf("/readyz: %s", body)
			}
			return
		}
		if time.Since(start) > within {
			t.Fatalf("/readyz = %d %q after %v, want %d", status, body, time.Since(start), want)
		}
	}
}

var (
	peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)
	goroutine  = regexp.MustCompile(`(?m)^goroutine \d+ `)
)

// wantBounded holds a process to what it may use, at its worst where the system keeps that. It ends the process.
func wantBounded(t *testing.T, p *testkit.Server) {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/", p.Cmd.Process.Pid)
	status, err := os.ReadFile(folder + "status")
	if err != nil {
		t.Fatal(err)
	}
	m := peakMemory.FindSubmatch(status)
	if m == nil {
		t.Fatalf("no memory in %s", status)
	}
	memory, _ := strconv.Atoi(string(m[1]))
	if memory <<= 10; memory > mostMemory {
		t.Errorf("the service used %d bytes, want %d at most", memory, mostMemory)
	}
	files, err := os.ReadDir(folder + "fd")
	if err != nil || len(files) > mostFiles {
		t.Errorf("the service has %d files open (%v), want %d at most", len(files), err, mostFiles)
	}
	said := len(p.Stderr.String())
	p.Signal(syscall.SIGQUIT) // it tells all its goroutines
	p.WaitExit()
	goroutines := len(goroutine.FindAllString(p.Stderr.String()[said:], -1))
	p.Stderr.Truncate(said) // what is of use in a log ends here
	if goroutines == 0 || goroutines > mostGoroutines {
		t.Errorf("the service had %d goroutines, want 1 to %d", goroutines, mostGoroutines)
	}
	t.Logf("%d MiB at most, %d files, %d goroutines", memory>>20, len(files), goroutines)
}

// wantSessions waits until the service has no more sessions at the server than it may.
func wantSessions(t *testing.T, server *pgtest.Server, database string) {
	t.Helper()
	count := "SELECT count(*) FROM pg_stat_activity WHERE datname = '" + database + "' AND application_name = 'plantstore'"
	var sessions int
	for range 250 {
		sessions, _ = strconv.Atoi(server.Query(t, "postgres", count)[0][0])
		if sessions > 0 && sessions <= mostSessions {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d sessions at the server, want 1 to %d", sessions, mostSessions)
}

func TestDatabaseIsKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	db := server.Database(t)
	p, targets := serveFixed(t, db)
	tr := drive(t, false, targets...)
	endure(t, p, tr, server, testkit.DatabaseName(t, db), fault{begin: testkit.Must(t, server.Kill9), end: testkit.Must(t, server.Start)})
}

// A server that confirms before it has written is refused unless the operator insists. What it loses
// when it is killed is what the ledger must notice.
func TestUnsafeDurabilityLosesPlants(t *testing.T) {
	t.Parallel()
	if !losesPlants(t) && !losesPlants(t) { // once the server may just have written all
		t.Error("no plant was lost: either the ledger is blind, or the refusal is needless")
	}
}

// losesPlants reports whether a server that confirms before it has written loses plants when it is killed.
func losesPlants(t *testing.T) bool {
	t.Helper()
	server := pgtest.Start(t, map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s"})
	db := server.Database(t)
	if _, errs, code := testkit.Run(t, nil, "serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "off"); code != 1 || !strings.Contains(errs, "--unsafe-durability") {
		t.Fatalf("a server that can lose plants is not refused: exit %d, %s", code, errs)
	}
	_, targets := serveFixed(t, db, "--unsafe-durability")
	tr := drive(t, false, targets...)
	tr.await(5*calm, 10*time.Second)
	testkit.Must(t, server.Kill9)()
	testkit.Must(t, server.Start)()
	lies := tr.settle(db + "&synchronous_commit=on")
	t.Logf("%d of %d plants answered 200 are lost", len(lies), len(tr.acked))
	return len(lies) > 0
}

// proxied starts the product with a proxy between it and a database of the shared server.
func proxied(t *testing.T) (p *testkit.Server, tr *traffic, network *proxy.Proxy, database string) {
	t.Helper()
	server := pgtest.Shared(t)
	database = testkit.DatabaseName(t, server.Database(t))
	network = proxy.New(t, fmt.Sprintf("127.0.0.1:%d", server.Port))
	p, targets := serveFixed(t, server.Through(network.Address, database))
	return p, drive(t, false, targets...), network, database
}

func TestNetworkFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		network proxy.Fault
		fault   fault
		want    int // an answer that clients must get during the fault; 0 where one may come only after it
	}{
		{"it resets every connection", proxy.Reset(proxy.Replies), fault{}, 50303},
		{"it is slow", proxy.Delay(proxy.Replies, 100*time.Millisecond, 50*time.Millisecond), fault{partial: true}, 200},
		{"it is slower than anybody waits", proxy.Delay(proxy.Replies, 6*time.Second, 0), fault{}, 0},
		{"it carries no requests", proxy.Drop(proxy.Requests), fault{}, 0},
		{"it carries requests and no replies", proxy.Drop(proxy.Replies), fault{lasts: 6 * time.Second}, 50303},
		{"it closes connections in the middle of requests", proxy.Limit(proxy.Requests, 5000), fault{partial: true}, 200},
		{"it closes connections in the middle of replies", proxy.Limit(proxy.Replies, 3000), fault{partial: true}, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, tr, network, database := proxied(t)
			var before int
			test.fault.begin = func() {
				before = tr.count()[test.want]
				network.Set(test.network)
			}
			test.fault.end = func() {
				least := before + 1
				if test.want == 200 {
					least += trafficClients // each may have one that was stored before
				}
				for deadline := time.Now().Add(20 * time.Second); test.want != 0 && tr.count()[test.want] < least; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%d creates were answered %d during the fault, want %d at least", tr.count()[test.want]-before, test.want, least-before)
					}
				}
				network.Set(nil)
			}
			endure(t, p, tr, pgtest.Shared(t), database, test.fault)
		})
	}
}

func TestDatabaseIsOutOfConnections(t *testing.T) {
	t.Parallel()
	const places = 20
	server := pgtest.Start(t, map[string]string{"max_connections": strconv.Itoa(places)})
	db := server.Database(t)
	p, targets := serveFixed(t, db)
	tr := drive(t, false, targets...)
	var others []*pgx.Conn
	endure(t, p, tr, server, testkit.DatabaseName(t, db), fault{
		begin: func() { others = takeAllConnections(t, server, places) },
		end: func() {
			for _, conn := range others {
				conn.Close(t.Context())
			}
		},
	})
}

// takeAllConnections opens as many sessions as the server has places, and ends those of the service to get them.
func takeAllConnections(t *testing.T, server *pgtest.Server, places int) (others []*pgx.Conn) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(others) < places; {
		if conn, err := pgx.Connect(t.Context(), server.SocketURL("postgres")); err == nil {
			others = append(others, conn)
			continue
		}
		if len(others) == 0 {
			time.Sleep(10 * time.Millisecond) // places that the server keeps for us are still in use
		} else if _, err := others[0].Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'plantstore'"); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d places taken: the service keeps the others", len(others), places)
		}
	}
	return others
}

func TestTableIsLocked(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	db := server.Database(t)
	p, targets := serveFixed(t, db)
	tr := drive(t, false, targets...)
	other, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close(context.Background()) })
	run := func(sql string) func() {
		return testkit.Must(t, func() error { _, err := other.Exec(t.Context(), sql); return err })
	}
	endure(t, p, tr, server, testkit.DatabaseName(t, db), fault{begin: run("BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE"), end: run("ROLLBACK")})
}

// pair is a primary, its standby, and the product with the addresses of both.
func pair(t *testing.T) (primary, standby *pgtest.Server, p *testkit.Server, tr *traffic, database string) {
	t.Helper()
	primary = pgtest.Start(t, nil)
	database = testkit.DatabaseName(t, primary.Database(t))
	standby = pgtest.Standby(t, primary)
	db := fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		pgtest.User, pgtest.Password, primary.Port, standby.Port, database)
	p, targets := serveFixed(t, db)
	return primary, standby, p, drive(t, false, targets...), database
}

func promote(t *testing.T, standby *pgtest.Server) {
	t.Helper()
	if done := standby.Query(t, "postgres", "SELECT pg_promote()"); done[0][0] != "t" {
		t.Fatal("the standby was not promoted")
	}
}

// awaitStandbys waits until a primary has so many standbys of a kind: a change of the settings takes a moment.
func awaitStandbys(t *testing.T, primary *pgtest.Server, kind, want string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := primary.Query(t, "postgres", "SELECT count(*) FROM pg_stat_replication WHERE "+kind)[0][0]
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s standbys where %s, want %s", got, kind, want)
		}
	}
}

func TestSynchronousStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	primary, standby, p, tr, database := pair(t)
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	awaitStandbys(t, primary, "sync_state = 'sync'", "1")
	endure(t, p, tr, standby, database, fault{begin: testkit.Must(t, primary.Kill9), end: func() { promote(t, standby) }})
}

// A standby that commits do not wait for can be behind. What it lacks when it is promoted is what the
// ledger must notice.
func TestAsynchronousStandbyLosesPlants(t *testing.T) {
	t.Parallel()
	primary, standby, _, tr, database := pair(t)
	tr.await(calm, 10*time.Second)
	standby.Exec(t, "ALTER SYSTEM SET primary_conninfo = ''")
	standby.Exec(t, "SELECT pg_reload_conf()")
	awaitStandbys(t, primary, "true", "0")
	tr.await(5*calm, 10*time.Second)
	testkit.Must(t, primary.Kill9)()
	promote(t, standby)
	lies := tr.settle(standby.URL(database))
	if len(lies) == 0 {
		t.Error("no plant was lost: the ledger is blind")
	}
	t.Logf("%d of %d plants answered 200 are lost", len(lies), len(tr.acked))
}
