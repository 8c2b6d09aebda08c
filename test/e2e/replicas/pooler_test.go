package replicas

import (
	"testing"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
)

// The service uses PostgreSQL through PgBouncer. Either of them is restarted under traffic.
func TestPooler(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, mode := range pgtest.PoolModes {
		for name, of := range map[string]func(*testing.T, *pgtest.Server, *pgtest.Pooler) fault{
			"PgBouncer is restarted": func(t *testing.T, _ *pgtest.Server, pooler *pgtest.Pooler) fault {
				return fault{begin: testkit.Must(t, pooler.Stop), end: testkit.Must(t, pooler.Start)}
			},
			"PostgreSQL is killed": func(t *testing.T, server *pgtest.Server, _ *pgtest.Pooler) fault {
				return fault{begin: testkit.Must(t, server.Kill9), end: testkit.Must(t, server.Start)}
			},
		} {
			t.Run(mode+": "+name, func(t *testing.T) {
				t.Parallel()
				server := pgtest.Start(t, nil)
				database := testkit.DatabaseName(t, server.Database(t))
				pooler := pgtest.StartPooler(t, server, mode)
				p, targets := startTwoTokens(t, pooler.URL(database))
				causeFault(t, p, drive(t, targets...), server, database, of(t, server, pooler))
			})
		}
	}
}
