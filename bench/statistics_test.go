package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(test.in); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.in, got, test.want)
		}
	}
}

// The critical values are those of published tables of the signed-rank test, two-sided at 5 %.
func TestSignedRanks(t *testing.T) {
	for n, want := range map[int]int{5: -1, 6: 0, 8: 3, 10: 8, 15: 25, 20: 52} {
		critical, sum := -1, 0.0
		for i, p := range signedRanks(n) {
			if sum += p; sum <= alpha/2 {
				critical = i
			}
		}
		if critical != want {
			t.Errorf("%d values: critical value %d, want %d", n, critical, want)
		}
	}
}

func TestPairedRatioCountsARoundOnce(t *testing.T) {
	ones := slices.Repeat([]float64{1}, 18)
	got := pairedRatio(3)(ones, []float64{1, 90, 2, 2, 2, 2, 2, 0, 4, 2, 2, 9, 2, 2, 2, 4, 4, 4})
	if want := (interval{2, 2, 4}); got != want {
		t.Errorf("6 rounds of 3 pairs: %+v, want %+v", got, want)
	}
	if got := pairedRatio(3)(ones, ones[:15]); got.Low != 0 || got.High != math.MaxFloat64 {
		t.Errorf("5 rounds: %+v, want no bounds", got)
	}
}

// The probabilities of the rank sums 0 to 3 of 5 and 5 values are 1, 1, 2 and 3 of 252.
func TestRankSums(t *testing.T) {
	p := rankSums(5, 5)
	for u, want := range []float64{1, 1, 2, 3} {
		if got := p[u] * 252; math.Abs(got-want) > 1e-9 {
			t.Errorf("rank sum %d has probability %v/252, want %v/252", u, got, want)
		}
	}
	if got, want := len(p), 26; got != want || math.Abs(p[25]-p[0]) > 1e-12 {
		t.Errorf("%d rank sums, the last with %v; want %d, and %v", got, p[25], want, p[0])
	}
}

func TestUnpairedRatio(t *testing.T) {
	old := []float64{100, 101, 102, 103, 104}
	if got := unpairedRatio(old, []float64{90, 91, 92, 93, 94}); got.High >= 1 || got.Low < 0.85 {
		t.Errorf("a tenth less: %+v, want an interval below 1", got)
	}
	if got := unpairedRatio(old, []float64{99, 104, 101, 103, 102}); got.excludes(1) {
		t.Errorf("the same: %+v, want an interval with 1 in it", got)
	}
	if got := unpairedRatio(old[:3], []float64{90, 91, 92}); got.excludes(1) {
		t.Errorf("3 rounds: %+v, want no bounds", got)
	}
}

// Intervals must contain the true ratio in at least 95 of 100 comparisons, and be narrow enough to see 3 %.
func TestIntervalsContainTheTrueRatio(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const times = 2000
	for name, estimate := range map[string]func(old, new []float64) interval{
		"paired": pairedRatio(1), "unpaired": unpairedRatio,
	} {
		contained, seen := 0, 0
		for range times {
			old, same, slower := make([]float64, 15), make([]float64, 15), make([]float64, 15)
			for i := range old {
				speed := 1.0
				if name == "paired" { // the speed of the machine changes from round to round
					speed = 0.7 + 0.6*random.Float64()
				}
				noise := func() float64 { return 1 + 0.015*random.NormFloat64() }
				old[i], same[i], slower[i] = speed*noise(), speed*noise(), 0.97*speed*noise()
			}
			if !estimate(old, same).excludes(1) {
				contained++
			}
			if estimate(old, slower).High < 1 {
				seen++
			}
		}
		if contained < times*94/100 {
			t.Errorf("%s: %d of %d intervals contain the true ratio", name, contained, times)
		}
		if seen < times*90/100 {
			t.Errorf("%s: a loss of 3 %% was seen %d of %d times", name, seen, times)
		}
	}
}

func TestComparisonNamesTheDirection(t *testing.T) {
	var old, new []sample
	for i := range 8 {
		old = append(old, sample{Rate: 1000 + float64(i), CPU: 20, P50: 5})
		new = append(new, sample{Rate: 900 + float64(i), CPU: 15, P50: 5})
	}
	verdicts := map[string]string{}
	changes := compareRounds("Plant Store", old, new, pairedRatio(1))
	for _, c := range changes {
		verdicts[c.Figure] = c.verdict()
	}
	want := map[string]string{"requests/s": "WORSE", "CPU µs": "better", "p50 µs": ""}
	if len(verdicts) != len(want) {
		t.Errorf("verdicts %v, want %v", verdicts, want)
	}
	for figure, verdict := range want {
		if got := verdicts[figure]; got != verdict {
			t.Errorf("%s: verdict %q, want %q", figure, got, verdict)
		}
	}
	var text strings.Builder
	printChanges(&text, changes)
	if !strings.Contains(text.String(), "-9.9 %") {
		t.Errorf("the table lacks the change:\n%s", text.String())
	}
}

func TestResultIsComparedWithAnEarlierOne(t *testing.T) {
	old, now := sampleResult(), sampleResult()
	for i := range now.Rows[0].Rounds {
		now.Rows[0].Rounds[i].Rate *= 2
	}
	for _, res := range []*result{&old, &now} { // 4 rounds are enough for an interval
		for i, l := range res.Rows[:2] {
			res.Rows[i].Rounds = slices.Repeat(l.Rounds[:1], 4)
		}
	}
	found := map[string]change{}
	for _, c := range now.since(old) {
		if c.Row == "Plant Store" {
			found[c.Figure] = c
		}
	}
	if got, want := found["ratio"], 2.0; got.Ratio.Estimate != want || got.verdict() != "better" {
		t.Errorf("ratio: %+v, %s; want %v and better", got, got.verdict(), want)
	}
	if got := found["requests/s"]; !got.Ratio.excludes(1) || got.verdict() != "" {
		t.Errorf("requests/s: %+v, %s; want a change that is not marked", got, got.verdict())
	}
}
