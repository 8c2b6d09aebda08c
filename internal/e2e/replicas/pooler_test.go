package replicas

import (
	"testing"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

// The service uses PostgreSQL through PgBouncer. Either of them is restarted under traffic.
func TestPooler(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, mode := range pgtest.PoolModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			t.Run("PgBouncer is restarted", func(t *testing.T) {
				t.Parallel()
				restartBehindPooler(t, mode, func(_ *pgtest.Server, pooler *pgtest.Pooler) fault {
					return fault{begin: testkit.Must(t, pooler.Stop), end: testkit.Must(t, pooler.Start)}
				})
			})
			t.Run("PostgreSQL is killed", func(t *testing.T) {
				t.Parallel()
				restartBehindPooler(t, mode, func(server *pgtest.Server, _ *pgtest.Pooler) fault {
					return fault{begin: testkit.Must(t, server.Kill9), end: testkit.Must(t, server.Start)}
				})
			})
		})
	}
}

func restartBehindPooler(t *testing.T, mode string, of func(*pgtest.Server, *pgtest.Pooler) fault) {
	server := pgtest.Start(t, nil)
	database := testkit.DatabaseName(t, server.Database(t))
	pooler := pgtest.StartPooler(t, server, mode)
	p, targets := startTwoTokens(t, pooler.URL(database))
	tr := drive(t, targets...)
	causeFault(t, p, tr, server, database, of(server, pooler))
}
