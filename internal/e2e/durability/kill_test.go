//go:build linux

package durability

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
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

// campaign is several trials of one kind.
type campaign struct {
	name    string
	cuts    int
	new     func(t *testing.T) *trial
	special moment // occurs twice in each trial
	made    int
	total   ledger.Report
	at      map[moment]int
}

const cutsPerTrial = 20

// run makes the trials of a campaign and prints the progress.
func (k *campaign) run(t *testing.T) {
	start := time.Now()
	k.at = map[moment]int{}
	often := []moment{whileStarting, whileServing, whileServing, whileStopping, whileServing}
	moments := slices.Repeat(often, cutsPerTrial/len(often))
	moments[cutsPerTrial/2-1], moments[cutsPerTrial-1] = k.special, k.special
	for n := 0; n < k.cuts/cutsPerTrial && !t.Failed(); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := k.new(t)
			c.run(moments...)
			c.wantNoViolation()
			k.total.Add(c.total)
			for at, n := range c.cuts {
				k.at[at] += n
				k.made += n
			}
		})
		fmt.Printf("%5.0fs  %-20s %d of %d cuts, %d acknowledged, %d lost\n",
			time.Since(start).Seconds(), k.name, k.made, k.cuts, k.total.Acked, k.total.Lost)
	}
}

// TestSoak is for make soak.
func TestSoak(t *testing.T) {
	if !*soak {
		t.Skip("make soak runs it")
	}
	campaigns := []*campaign{
		{name: "kill -9, SQLite", cuts: 200, new: killSQLite, special: whileCheckpointing},
		{name: "power cut, SQLite", cuts: 100, new: cutPowerSQLite, special: whileCheckpointing},
		{name: "kill -9, PostgreSQL", cuts: 100, new: killPostgreSQL, special: withDatabase},
	}
	start := time.Now()
	t.Run("campaigns", func(t *testing.T) {
		for _, k := range campaigns {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				k.run(t)
			})
		}
	})
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "cut\tcuts\tsent\tacknowledged\trefused\tunknown\tfound stored\tabsent\tlost\tviolations\t")
	for _, k := range campaigns {
		r := k.total
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", k.name, k.made, r.Sent, r.Acked, r.Refused,
			r.Unknown, r.Stored, r.Absent, r.Lost, len(r.Violations))
	}
	w.Flush()
	fmt.Println()
	for _, k := range campaigns {
		fmt.Printf("%s: %v\n", k.name, k.at)
		if k.made < k.cuts {
			t.Errorf("%s: %d cuts, want %d (a power cut needs root on Linux)", k.name, k.made, k.cuts)
		}
	}
	fmt.Printf("in %v\n", time.Since(start).Round(time.Second))
}
