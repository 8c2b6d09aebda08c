package replicas

import (
	"fmt"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
	"plantstore/test/testkit/proxy"
)

// startTwoTokens starts the product with a fixed token, which needs no database, and issues another, which is looked
// up there. The traffic uses both.
func startTwoTokens(t *testing.T, db string) (p *testkit.Server, targets []testkit.Target) {
	t.Helper()
	p = testkit.StartFixed(t, db)
	stored := testkit.IssueToken(t, db, "--name", "stored")
	return p, []testkit.Target{p.Target(), {URL: p.URL, Token: stored}}
}

const (
	maxMemory     = 200 << 20
	maxGoroutines = 3*trafficClients + 50
	maxFiles      = trafficClients + 50
	maxSessions   = 16 // The pool has 8 by default, and as many may be closing.
)

// fault is a fault of a database. Each of its functions returns when the fault has started or ended.
type fault struct {
	begin, end func()
	lasts      time.Duration // after the service is not ready; 1 s if 0
	partial    bool          // the service may continue, so its readiness is not checked
	resets     bool          // connections without traffic are reset too
}

// causeFault causes a fault under traffic and checks that the service reports that it is not ready, recovers by itself
// and keeps its resources bounded, and that the ledger agrees with what is stored. It ends the service.
func causeFault(t *testing.T, p *testkit.Server, tr traffic, server *pgtest.Server, database string, f fault) {
	t.Helper()
	tr.Wait(t, enoughCreates)
	p.WaitReady(t, true)
	f.begin()
	if !f.partial {
		if body := p.WaitReady(t, false); !notReady.MatchString(body) {
			t.Errorf("/readyz during the fault = %q, want the reason", body)
		}
	}
	for start := time.Now(); time.Since(start) < max(f.lasts, time.Second); time.Sleep(10 * time.Millisecond) {
		if status, body := p.Health(t, "/readyz"); status != 503 && !f.partial {
			t.Errorf("/readyz during the fault = %d %q", status, body)
		}
	}
	f.end()
	ended := time.Now()
	tr.Wait(t, 1)
	p.WaitReady(t, true)
	t.Logf("recovered after %v", time.Since(ended).Round(time.Millisecond))
	tr.Wait(t, enoughCreates)
	tr.stop()
	wantSessions(t, server, database)
	if n := tr.Responses()[ledger.None]; n > 0 {
		t.Errorf("%d requests got no response", n)
	}
	tr.CheckMany(t, p.Target())
	wantBounded(t, p)
}

var (
	notReady  = regexp.MustCompile(`^not ready: \w+ \w+ .+\n$`)
	goroutine = regexp.MustCompile(`(?m)^goroutine \d+ `)
)

// wantBounded checks the peak memory, the open files and the goroutines of a server, and ends it.
func wantBounded(t *testing.T, s *testkit.Server) {
	t.Helper()
	memory, files := s.Memory(t, "VmHWM"), s.OpenFiles(t)
	if memory > maxMemory {
		t.Errorf("the service used %d bytes, want at most %d", memory, maxMemory)
	}
	if files > maxFiles {
		t.Errorf("the service has %d files open, want at most %d", files, maxFiles)
	}
	logged := len(s.Stderr.String())
	s.Signal(syscall.SIGQUIT) // It prints all goroutines.
	s.WaitExit()
	goroutines := len(goroutine.FindAllString(s.Stderr.String()[logged:], -1))
	s.Stderr.Truncate(logged)
	if goroutines == 0 || goroutines > maxGoroutines {
		t.Errorf("the service had %d goroutines, want 1 to %d", goroutines, maxGoroutines)
	}
	t.Logf("at most %d MiB, %d files, %d goroutines", memory>>20, files, goroutines)
}

// wantSessions waits until the service has at least one and not too many sessions at the server.
func wantSessions(t *testing.T, server *pgtest.Server, database string) {
	t.Helper()
	count := "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantstore' AND datname = '" + database + "'"
	testkit.WaitFor(t, fmt.Sprintf("1 to %d sessions at the server", maxSessions), func() bool {
		sessions, _ := strconv.Atoi(server.Query(t, "postgres", count)[0][0])
		return sessions > 0 && sessions <= maxSessions
	})
}

// PostgreSQL is killed and started again.
func TestDatabaseIsKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	db := server.Database(t)
	p, targets := startTwoTokens(t, db)
	tr := drive(t, targets...)
	kill := fault{begin: testkit.Must(t, server.Kill9), end: testkit.Must(t, server.Start)}
	causeFault(t, p, tr, server, pgtest.Name(db), kill)
}

// A promoted synchronous standby has every acknowledged plant.
func TestSynchronousStandbyIsPromoted(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	primary := pgtest.Start(t, nil)
	database := pgtest.Name(primary.Database(t))
	standby := pgtest.Standby(t, primary)
	p, targets := startTwoTokens(t, fmt.Sprintf(
		"postgres://%s:%s@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		pgtest.User, pgtest.Password, primary.Port, standby.Port, database))
	tr := drive(t, targets...)
	primary.Reload(t, "synchronous_standby_names", "*")
	testkit.WaitFor(t, "a synchronous standby", func() bool {
		return len(primary.Query(t, "postgres", "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")) == 1
	})
	kill := fault{begin: testkit.Must(t, primary.Kill9), end: func() {
		if done := standby.Query(t, "postgres", "SELECT pg_promote()"); done[0][0] != "t" {
			t.Fatal("the standby was not promoted")
		}
	}}
	causeFault(t, p, tr, standby, database, kill)
}

// The service uses PostgreSQL through PgBouncer. Either of them is restarted under traffic.
func TestPooler(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, mode := range []string{"session", "transaction"} {
		for _, what := range []string{"PgBouncer is restarted", "PostgreSQL is killed"} {
			t.Run(mode+": "+what, func(t *testing.T) {
				t.Parallel()
				server := pgtest.Start(t, nil)
				database := pgtest.Name(server.Database(t))
				pooler := pgtest.StartPooler(t, server, mode)
				p, targets := startTwoTokens(t, pooler.URL(database))
				cause := fault{begin: testkit.Must(t, server.Kill9), end: testkit.Must(t, server.Start)}
				if what == "PgBouncer is restarted" {
					cause = fault{begin: testkit.Must(t, pooler.Stop), end: testkit.Must(t, pooler.Start)}
				}
				causeFault(t, p, drive(t, targets...), server, database, cause)
			})
		}
	}
}

// The network to PostgreSQL has a fault.
func TestNetworkFails(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, test := range []struct {
		name    string
		network proxy.Fault
		fault   fault
		want    int // a response that clients must get during the fault, or 0 if it may come after it
	}{
		{"it resets every connection", proxy.Reset(proxy.Replies), fault{resets: true}, 50303},
		{"it is slow", proxy.Delay(proxy.Replies, 100*time.Millisecond, 50*time.Millisecond), fault{partial: true}, 200},
		{"it is slower than any timeout", proxy.Delay(proxy.Replies, 6*time.Second, 0), fault{}, 0},
		{"it carries no requests", proxy.Drop(proxy.Requests), fault{}, 0},
		{"it carries requests and no replies", proxy.Drop(proxy.Replies), fault{lasts: 6 * time.Second}, 50303},
		{"it closes connections during requests", proxy.Limit(proxy.Requests, 5000), fault{partial: true}, 200},
		{"it closes connections during replies", proxy.Limit(proxy.Replies, 3000), fault{partial: true}, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Shared(t)
			database := pgtest.Name(server.Database(t))
			network := proxy.New(t, fmt.Sprint("127.0.0.1:", server.Port))
			p, targets := startTwoTokens(t, server.Through(network.Address, database))
			tr := drive(t, targets...)
			var before int
			test.fault.begin = func() {
				before = tr.Responses()[test.want]
				network.Set(test.network)
				if test.fault.resets {
					network.Reset()
				}
			}
			test.fault.end = func() {
				least := before + 1
				if test.want == 200 {
					least += trafficClients // Each may have one that was stored before.
				}
				testkit.WaitFor(t, fmt.Sprintf("%d responses %d during the fault", least-before, test.want), func() bool {
					return test.want == 0 || tr.Responses()[test.want] >= least
				})
				network.Set(nil)
			}
			causeFault(t, p, tr, server, database, test.fault)
		})
	}
}
