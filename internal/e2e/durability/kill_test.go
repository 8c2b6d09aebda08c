//go:build linux

package durability

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/ledger"
)

var soak = flag.Bool("soak", false, "run TestSoak, which cuts the service off 400 times")

// After kill -9, no acknowledged plant is lost and no refused plant is stored.
func TestKill(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		c := killSQLite(t)
		c.run(whileStarting, whileServing, whileStopping)
		c.wantNoViolation()
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		c := killPostgreSQL(t)
		c.run(whileServing, withDatabase, whileStopping)
		c.wantNoViolation()
	})
	t.Run("citus", func(t *testing.T) {
		testkit.Long(t)
		t.Parallel()
		c := killCitus(t)
		c.run(whileStarting, whileServing, whileStopping, whileServing)
		c.wantNoViolation()
	})
}

// The same holds after a power cut, which loses what was not synced.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	c := cutPowerSQLite(t)
	c.run(whileServing, whileStopping)
	c.wantNoViolation()
}

const cutsPerTrial = 20

// soakTrials makes trials one after the other and returns what they found. Each has two cuts at the special moment.
func soakTrials(
	t *testing.T, trials int, special moment, start func(t *testing.T) *trial,
) (cuts int, total ledger.Report) {
	often := []moment{whileStarting, whileServing, whileServing, whileStopping, whileServing}
	moments := slices.Repeat(often, cutsPerTrial/len(often))
	moments[cutsPerTrial/2-1], moments[cutsPerTrial-1] = special, special
	for n := 0; n < trials && !t.Failed(); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := start(t)
			c.run(moments...)
			c.wantNoViolation()
			total.Add(c.total)
			for _, n := range c.cuts {
				cuts += n
			}
		})
	}
	return cuts, total
}

// TestSoak is for make soak, which prints one row for each kind of cut.
func TestSoak(t *testing.T) {
	if !*soak {
		t.Skip("make soak runs it")
	}
	start := time.Now()
	for _, test := range []struct {
		name    string
		trials  int
		special moment
		start   func(t *testing.T) *trial
	}{
		{"kill -9, SQLite", 10, whileCheckpointing, killSQLite},
		{"power cut, SQLite", 5, whileCheckpointing, cutPowerSQLite},
		{"kill -9, PostgreSQL", 5, withDatabase, killPostgreSQL},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cuts, total := soakTrials(t, test.trials, test.special, test.start)
			fmt.Printf("%s, %d cuts in %v: %v\n", test.name, cuts, time.Since(start).Round(time.Second), total)
			if want := test.trials * cutsPerTrial; cuts < want {
				t.Errorf("%d cuts, want %d (a power cut needs root on Linux)", cuts, want)
			}
		})
	}
}
