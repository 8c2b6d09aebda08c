package main

import (
	"slices"
	"time"
)

// result contains all figures of a run.
type result struct {
	Date    string   `json:"date"`
	Took    string   `json:"took"`
	Machine machine  `json:"machine"`
	Rows    []line   `json:"rows"`
	Targets []target `json:"targets"`
	Faults  []string `json:"faults"`
}

// line is a row with the medians of its rounds.
type line struct {
	Key     string   `json:"key"`
	Title   string   `json:"title"`
	Conns   int      `json:"connections"`
	Median  sample   `json:"median"`
	Ratio   float64  `json:"ratio,omitempty"` // median of the rounds' ratios to the row Base; 0 for none
	Base    string   `json:"base"`
	Rounds  []sample `json:"rounds"`
	Skipped string   `json:"skipped,omitempty"`
}

func newResult(m machine, rows []*row, faults []string, began time.Time) result {
	took := time.Since(began).Round(time.Second).String()
	res := result{Date: began.Format(time.DateOnly), Took: took, Machine: m, Faults: faults}
	for _, r := range rows {
		res.Rows = append(res.Rows, line{
			Key: r.Key, Title: r.Title, Conns: r.conns, Base: r.Base, Rounds: r.samples, Skipped: r.skipped,
			Median: medians(r.samples),
		})
	}
	for i, l := range res.Rows {
		res.Rows[i].Ratio = res.ratio(l.Key, l.Base, rateOfSample)
	}
	res.Targets = targets(res)
	return res
}

func rateOfSample(s sample) float64 { return s.Rate }

// find returns the row with that key, or one without rounds.
func (res result) find(key string) line {
	for _, l := range res.Rows {
		if l.Key == key {
			return l
		}
	}
	return line{Key: key}
}

// ratio compares two rows round by round and returns the median, because a disturbance of the machine
// during a round affects both. It returns 0 if a row was not measured.
func (res result) ratio(key, base string, of func(sample) float64) float64 {
	a, b := res.find(key).Rounds, res.find(base).Rounds
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if under := of(b[i]); under > 0 {
			ratios = append(ratios, of(a[i])/under)
		}
	}
	return median(ratios)
}

func medians(samples []sample) sample {
	of := func(field func(sample) float64) float64 {
		var values []float64
		for _, s := range samples {
			values = append(values, field(s))
		}
		return median(values)
	}
	return sample{
		Rate:      of(rateOfSample),
		P50:       of(func(s sample) float64 { return s.P50 }),
		P99:       of(func(s sample) float64 { return s.P99 }),
		P999:      of(func(s sample) float64 { return s.P999 }),
		CPU:       of(func(s sample) float64 { return s.CPU }),
		EngineCPU: of(func(s sample) float64 { return s.EngineCPU }),
		WorkerCPU: of(func(s sample) float64 { return s.WorkerCPU }),
		Bytes:     of(func(s sample) float64 { return s.Bytes }),
		RSSStart:  of(func(s sample) float64 { return s.RSSStart }),
		RSS:       of(func(s sample) float64 { return s.RSS }),
		Peak:      of(func(s sample) float64 { return s.Peak }),
		LoadCPU:   of(func(s sample) float64 { return s.LoadCPU }),
		Others:    of(func(s sample) float64 { return s.Others }),
	}
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
