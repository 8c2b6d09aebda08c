// Package replicas tests several servers on one PostgreSQL database, and faults of the database and its network.
package replicas

import (
	"os"
	"testing"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const (
	trafficClients = 24
	enoughCreates  = 100 // acknowledgements before a fault and after it
)

// traffic is the ledger of clients that create plants until they are stopped. A service with a fault may return 503;
// whatever it returns must be true.
type traffic struct {
	*ledger.Ledger
	stop func()
}

// drive starts the clients, spread over the targets.
func drive(t *testing.T, targets ...testkit.Target) traffic {
	t.Helper()
	l := ledger.New()
	return traffic{l, l.Start(t, ledger.Options{Clients: trafficClients}, targets...)}
}
