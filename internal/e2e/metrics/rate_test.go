package metrics

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

var rateRounds = flag.Int("metrics-rate", 0, "rounds that compare the rate of creates with and without metrics")

// Metrics change the rate of creates by at most 2 %: the median over rounds that measure two servers in turn.
func TestRateWithMetrics(t *testing.T) {
	if *rateRounds == 0 {
		t.Skip("make metrics-rate runs it, on an idle machine")
	}
	off := testkit.StartFixed(t, testkit.Engines[0].Database(t), "--ops-listen", "off")
	on := testkit.StartFixed(t, testkit.Engines[0].Database(t))
	first := 0
	measured := func(s *testkit.Server) (rate, cpu float64) {
		first += 1_000_000
		r := testkit.Creates(t, s, "-first", fmt.Sprint(first), "-warm", "100ms", "-window", "800ms")
		return float64(r.Count) / r.Seconds, float64(r.Server[0].CPU) / float64(r.Count)
	}
	measured(off)
	measured(on)
	var rates, cpus, without []float64
	for i := range *rateRounds {
		var rate, cpu [2]float64
		for j := range 2 { // each goes first in every other round
			which := (i + j) % 2
			rate[which], cpu[which] = measured([]*testkit.Server{off, on}[which])
		}
		rates, cpus, without = append(rates, rate[1]/rate[0]), append(cpus, cpu[1]/cpu[0]), append(without, cpu[0])
	}
	for _, all := range [][]float64{rates, cpus, without} {
		slices.Sort(all)
	}
	n := len(rates)
	t.Logf("with metrics to without, medians of %d rounds: rate %.3f (quartiles %.3f and %.3f), "+
		"processor time of a create %.3f (%.3f and %.3f) of %v", n, rates[n/2], rates[n/4], rates[n*3/4],
		cpus[n/2], cpus[n/4], cpus[n*3/4], time.Duration(without[n/2]))
	if rates[n/2] < 0.98 {
		t.Errorf("metrics take the rate to %.3f, want at least 0.98", rates[n/2])
	}
}
