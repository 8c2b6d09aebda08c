package replicas

import (
	"fmt"
	"testing"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
)

// A promoted synchronous standby has every acknowledged plant.
func TestSynchronousStandbyIsPromoted(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	primary := pgtest.Start(t, nil)
	database := testkit.DatabaseName(t, primary.Database(t))
	standby := pgtest.Standby(t, primary)
	p, targets := startTwoTokens(t, fmt.Sprintf(
		"postgres://%s:%s@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		pgtest.User, pgtest.Password, primary.Port, standby.Port, database))
	tr := drive(t, targets...)
	primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	primary.Exec(t, "SELECT pg_reload_conf()")
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
