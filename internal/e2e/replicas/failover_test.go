package replicas

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// startPair starts a primary, its standby, and the product with the addresses of both.
func startPair(t *testing.T) (primary, standby *pgtest.Server, p *testkit.Server, tr *traffic, database string) {
	t.Helper()
	primary = pgtest.Start(t, nil)
	database = testkit.DatabaseName(t, primary.Database(t))
	standby = pgtest.Standby(t, primary)
	db := fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		pgtest.User, pgtest.Password, primary.Port, standby.Port, database)
	p, targets := startTwoTokens(t, db)
	return primary, standby, p, drive(t, false, targets...), database
}

func promote(t *testing.T, standby *pgtest.Server) {
	t.Helper()
	if done := standby.Query(t, "postgres", "SELECT pg_promote()"); done[0][0] != "t" {
		t.Fatal("the standby was not promoted")
	}
}

// waitStandbys waits until a primary has so many standbys that match a condition.
func waitStandbys(t *testing.T, primary *pgtest.Server, kind, want string) {
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

// A promoted synchronous standby has every acknowledged plant.
func TestSynchronousStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	primary, standby, p, tr, database := startPair(t)
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	waitStandbys(t, primary, "sync_state = 'sync'", "1")
	kill := fault{begin: testkit.Must(t, primary.Kill9), end: func() { promote(t, standby) }}
	causeFault(t, p, tr, standby, database, kill)
}

// An asynchronous standby can lack plants when it is promoted, and the record detects them.
func TestAsynchronousStandbyLosesPlants(t *testing.T) {
	t.Parallel()
	primary, standby, _, tr, database := startPair(t)
	tr.wait(enoughCreates)
	standby.Exec(t, "ALTER SYSTEM SET primary_conninfo = ''")
	standby.Exec(t, "SELECT pg_reload_conf()")
	waitStandbys(t, primary, "true", "0")
	tr.wait(5 * enoughCreates)
	testkit.Must(t, primary.Kill9)()
	promote(t, standby)
	violations := tr.settle(standby.URL(database))
	if len(violations) == 0 {
		t.Error("the record found no lost plant")
	}
	t.Logf("%d of %d acknowledged plants are lost", len(violations), len(tr.acked))
}

// A PostgreSQL server that confirms before it has written is refused without --unsafe-durability. With the flag it
// loses plants when it is killed, and the record detects them.
func TestUnsafeDurabilityLosesPlants(t *testing.T) {
	t.Parallel()
	for range 2 { // The first time it may have written everything.
		if losesPlants(t) {
			return
		}
	}
	t.Error("the record found no lost plant")
}

// losesPlants reports whether the record detects plants that the killed server has lost.
func losesPlants(t *testing.T) bool {
	t.Helper()
	server := pgtest.Start(t, map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s"})
	db := server.Database(t)
	_, errs, code := testkit.Run(t, nil, "serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "off")
	if code != 1 || !strings.Contains(errs, "--unsafe-durability") {
		t.Fatalf("a server that can lose plants is not refused: exit %d, %s", code, errs)
	}
	_, targets := startTwoTokens(t, db, "--unsafe-durability")
	tr := drive(t, false, targets...)
	tr.wait(5 * enoughCreates)
	testkit.Must(t, server.Kill9)()
	testkit.Must(t, server.Start)()
	violations := tr.settle(db + "&synchronous_commit=on")
	t.Logf("%d of %d acknowledged plants are lost", len(violations), len(tr.acked))
	return len(violations) > 0
}
