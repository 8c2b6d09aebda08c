package main

import (
	"math"
	"slices"
)

// alpha is the share of intervals that may miss the true value.
const alpha = 0.05

// interval is an estimate with its 95 % confidence interval, which has no bounds if there are too few values.
type interval struct {
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// excludes reports whether the interval is on one side of a value.
func (i interval) excludes(value float64) bool { return i.Low > value || i.High < value }

// pairedRatio returns a function that estimates by which factor new differs from old if each value of one was measured
// next to one of the other, in rounds of so many pairs. A round counts with the median of its ratios, because two
// servers may differ for as long as they run. The estimate is the median of the means of two rounds, and the interval
// is that of the signed-rank test (Wilcoxon; Hodges and Lehmann). It needs 6 rounds.
func pairedRatio(pairs int) func(old, new []float64) interval {
	return func(old, new []float64) interval {
		var rounds, ratios, means []float64
		for i := range min(len(old), len(new)) {
			ratios = append(ratios, new[i]/old[i])
			if len(ratios) == pairs {
				rounds, ratios = append(rounds, median(ratios)), nil
			}
		}
		for i, a := range rounds {
			for _, b := range rounds[i:] {
				means = append(means, math.Sqrt(a*b))
			}
		}
		return orderInterval(means, signedRanks(len(rounds)))
	}
}

// unpairedRatio estimates the same from rounds of separate runs. The estimate is the median of all ratios of a new to
// an old value, and the interval is that of the rank-sum test (Mann and Whitney; Hodges and Lehmann). It needs 4 rounds
// each.
func unpairedRatio(old, new []float64) interval {
	var ratios []float64
	for _, o := range old {
		for _, n := range new {
			ratios = append(ratios, n/o)
		}
	}
	return orderInterval(ratios, rankSums(len(old), len(new)))
}

// orderInterval returns the median of the values and the two of them that enclose the true one. The probabilities are
// those of the test's statistic, from zero on.
func orderInterval(values, probabilities []float64) interval {
	sorted := slices.Sorted(slices.Values(values))
	outside, sum := 0, 0.0
	for _, p := range probabilities {
		if sum += p; sum > alpha/2 {
			break
		}
		outside++
	}
	if outside == 0 {
		return interval{median(values), 0, math.MaxFloat64}
	}
	return interval{median(values), sorted[outside-1], sorted[len(sorted)-outside]}
}

// signedRanks returns the probability of each value of the signed-rank statistic for n values: of each sum of some of
// the numbers from 1 to n.
func signedRanks(n int) []float64 {
	p := make([]float64, n*(n+1)/2+1)
	p[0] = 1
	for i := 1; i <= n; i++ {
		for sum := len(p) - 1; sum >= 0; sum-- {
			p[sum] /= 2
			if sum >= i {
				p[sum] += p[sum-i] / 2
			}
		}
	}
	return p
}

// rankSums returns the probability of each value of the rank-sum statistic for m and n values that do not differ: the
// coefficients of the Gaussian binomial, divided by their sum.
func rankSums(m, n int) []float64 {
	p := make([]float64, m*n+1)
	p[0] = 1
	for i := 1; i <= m; i++ {
		for u := len(p) - 1; u >= n+i; u-- {
			p[u] -= p[u-n-i]
		}
		for u := i; u < len(p); u++ {
			p[u] += p[u-i]
		}
	}
	var sum float64
	for _, v := range p {
		sum += v
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// median returns 0 for no values, and the mean of the middle two for an even number.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
