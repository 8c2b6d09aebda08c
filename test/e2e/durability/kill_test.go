//go:build linux

package durability

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"plantstore/test/testkit/ledger"
)

var soak = flag.Bool("soak", false, "run TestSoak, which cuts the service off 400 times")

// cutOff makes trials, one after the other, that cut a service off at the moments.
func cutOff(t *testing.T, name string, start func(t *testing.T) *trial, trials int, moments ...moment) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		began, cuts, total := time.Now(), 0, ledger.Report{}
		for n := 0; n < trials && !t.Failed(); n++ {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				c := start(t)
				c.run(moments...)
				c.wantNoViolation()
				total.Add(c.total)
				cuts += c.cuts
			})
		}
		if !*soak {
			return
		}
		fmt.Printf("%s, %d cuts in %v: %v\n", name, cuts, time.Since(began).Round(time.Second), total)
		if want := trials * len(moments); cuts < want {
			t.Errorf("%d cuts, want %d (a power cut needs root on Linux)", cuts, want)
		}
	})
}

// After kill -9, no acknowledged plant is lost and no refused plant is stored.
func TestKill(t *testing.T) {
	t.Parallel()
	cutOff(t, "sqlite", killSQLite, 1, whileStarting, whileServing, whileStopping)
	cutOff(t, "postgres", killPostgreSQL, 1, whileServing, withDatabase, whileStopping)
}

// The same holds after a power cut, which loses what was not synced.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	cutOff(t, "sqlite", cutPowerSQLite, 1, whileServing, whileStopping)
}

// TestSoak is for make soak, which prints one row for each kind of cut.
func TestSoak(t *testing.T) {
	if !*soak {
		t.Skip("make soak runs it")
	}
	often := slices.Repeat([]moment{whileStarting, whileServing, whileServing, whileStopping}, 2)
	sqlite := slices.Repeat(append(slices.Clip(often), whileServing, whileCheckpointing), 2)
	postgres := slices.Repeat(append(slices.Clip(often), whileServing, withDatabase), 2)
	cutOff(t, "kill -9, SQLite", killSQLite, 10, sqlite...)
	cutOff(t, "power cut, SQLite", cutPowerSQLite, 5, sqlite...)
	cutOff(t, "kill -9, PostgreSQL", killPostgreSQL, 5, postgres...)
}
