package transfer

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"plantstore/internal/testkit"
)

var rateRounds = flag.Int("backup-rate", 0, "rounds that compare the rate of creates with and without a backup")

// Creates keep at least 0.8 of their rate while backups of a million plants are written one after the other.
func TestRateDuringBackup(t *testing.T) {
	if *rateRounds == 0 {
		t.Skip("make backup-rate runs it, on an idle machine")
	}
	for _, order := range []string{"ascending", "scattered"} {
		t.Run(order, func(t *testing.T) { compareRates(t, "-scattered="+fmt.Sprint(order == "scattered")) })
	}
}

func compareRates(t *testing.T, order string) {
	db := testkit.Engines[0].Database(t)
	st := openStore(t, db)
	fill(t, st, "main", 1_000_000)
	st.Close()
	s := testkit.StartFixed(t, db)
	first := 0
	rate := func() float64 {
		first += 10_000_000
		r := testkit.Creates(t, s, order, "-first", fmt.Sprint(first), "-warm", "1s", "-window", "8s")
		return float64(r.Count) / r.Seconds
	}
	var ratios []float64
	before := rate()
	for range *rateRounds {
		var backups sync.WaitGroup
		stop := make(chan struct{})
		backups.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, errs, code := testkit.Run(t, nil, "backup", "--db", db, "--to", filepath.Join(t.TempDir(), fmt.Sprint(i)))
				if code != 0 {
					t.Errorf("backup: exit %d, %s", code, errs)
				}
			}
		})
		during := rate()
		close(stop)
		backups.Wait()
		after := rate()
		ratio := 2 * during / (before + after)
		t.Logf("%.0f creates/s before, %.0f during backups, %.0f after: %.2f", before, during, after, ratio)
		ratios, before = append(ratios, ratio), after
	}
	slices.Sort(ratios)
	if median := ratios[len(ratios)/2]; median < 0.8 {
		t.Errorf("the median of %.2f is %.2f, want at least 0.8", ratios, median)
	}
}
