// Package replicas tests several servers on one PostgreSQL database, and faults of the database and its network.
package replicas

import (
	"os"
	"testing"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
