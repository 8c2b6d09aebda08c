package replicas

import (
	"fmt"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// startPair starts a primary, its standby, and the product with the addresses of both.
func startPair(t *testing.T) (primary, standby *pgtest.Server, p *testkit.Server, tr traffic, database string) {
	t.Helper()
	primary = pgtest.Start(t, nil)
	database = testkit.DatabaseName(t, primary.Database(t))
	standby = pgtest.Standby(t, primary)
	db := fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		pgtest.User, pgtest.Password, primary.Port, standby.Port, database)
	p, targets := startTwoTokens(t, db)
	return primary, standby, p, drive(t, targets...), database
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
	testkit.Long(t)
	t.Parallel()
	primary, standby, p, tr, database := startPair(t)
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "SELECT pg_reload_conf()")
	waitStandbys(t, primary, "sync_state = 'sync'", "1")
	kill := fault{begin: testkit.Must(t, primary.Kill9), end: func() { promote(t, standby) }}
	causeFault(t, p, tr, standby, database, kill)
}
