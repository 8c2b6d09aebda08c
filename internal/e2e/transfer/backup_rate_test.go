package transfer

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/measure"
)

var rateRounds = flag.Int("backup-rate", 0, "rounds that compare the rate of creates with and without a backup")

// Creates keep at least 0.8 of their rate while backups of a million plants are written one after the other.
func TestRateDuringBackup(t *testing.T) {
	if *rateRounds == 0 {
		t.Skip("make backup-rate runs it, on an idle machine")
	}
	load, err := testkit.BuildCommand("load", "plantstore/internal/testkit/load")
	if err != nil {
		t.Fatal(err)
	}
	db := testkit.Engines[0].Database(t)
	st := openStore(t, db)
	fill(t, st, "main", 1_000_000)
	st.Close()
	s := testkit.StartFixed(t, db)
	first := 0
	rate := func() float64 {
		first += 10_000_000
		var r measure.Report
		out, err := exec.CommandContext(t.Context(), load, "-address", strings.TrimPrefix(s.URL, "http://"),
			"-token", s.Token, "-scattered", "-first", fmt.Sprint(first), "-warm", "1s", "-window", "6s").Output()
		if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil || r.Bad > 0 {
			t.Fatalf("load: %v, %d failed: %s", err, r.Bad, r.Reason)
		}
		return float64(r.Count) / r.Seconds
	}
	var ratios []float64
	for range *rateRounds {
		without := rate()
		stop, stopped, backups := make(chan struct{}), make(chan struct{}), 0
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				testkit.Run(t, nil, "backup", "--db", db, "--to", filepath.Join(t.TempDir(), "backup"))
				backups++
			}
		}()
		with := rate()
		close(stop)
		<-stopped
		ratios = append(ratios, with/without)
		t.Logf("%.0f creates/s without, %.0f with backups (%d): %.2f", without, with, backups, with/without)
	}
	slices.Sort(ratios)
	if median := ratios[len(ratios)/2]; median < 0.8 {
		t.Errorf("the median of %.2f is %.2f, want at least 0.8", ratios, median)
	}
}
