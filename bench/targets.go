package main

import "fmt"

// target is a limit for a figure, and the figure that was found.
type target struct {
	What  string  `json:"what"`
	Want  string  `json:"want"`
	Found float64 `json:"found"`
	State string  `json:"state"` // "met", "missed" or "not measured"
	unit  string
}

func targets(res result) []target {
	cpu := func(s sample) float64 { return s.CPU }
	p50 := func(s sample) float64 { return s.P50 }
	at1024 := res.find("conns-1024").Median
	gigabytes := res.find("list-1000-64").Median.Body * 60 / 1000
	worst, tail := longestTail(res)
	apart := max(res.find("get-apart").tail(), res.find("mixed-apart").tail())
	all := []target{
		atLeast("rate to a bare handler with the same checks", 0.70, res.ratio("ours", "bare", rateOfSample)),
		atLeast("rate to one transaction for each request", 4.5, res.ratio("ours", "single", rateOfSample)),
		atLeast("rate to PocketBase with its defaults", 10, res.ratio("ours", "pocketbase", rateOfSample)),
		atLeast("rate on PostgreSQL to pgbench", 1.3, res.ratio("postgres", "pgbench", rateOfSample)),
		atLeast("rate on Citus by id, 2 workers", 0.5, res.ratio("citus-id-2", "citus-none", rateOfSample)),
		atLeast("rate on Citus by store, 2 workers", 0.6, res.ratio("citus-store-2", "citus-none", rateOfSample)),
		atLeast("rate of reading all plants on Citus by id", 0.25, res.ratio("walk-id", "walk-none", rateOfSample)),
		atLeast("rate of reading all plants on Citus by store", 0.25,
			res.ratio("walk-store", "walk-none", rateOfSample)),
		atLeast("rate with a webhook endpoint to none", 0.6, res.ratio("webhook", "ours", rateOfSample)),
		atLeast("the same on PostgreSQL", 0.6, res.ratio("postgres-webhook", "postgres", rateOfSample)),
		atMost("CPU per create to the bare handler", 1.6, res.ratio("ours", "bare", cpu)),
		atMost("median latency of a single client to single transactions", 1.25, res.ratio("conns-1", "single-1", p50)),
		atMost("p99.9 to the median, every row of Plant Store with 64 connections; highest: "+worst, 8, tail),
		atMost("the same, get and a mix, service and load on separate cores", 8, apart),
		atLeast("lowest rate past the peak, to the peak, up to 1024 connections", 0.8, pastPeak(res)),
		atLeast("rate in a store with many plants to an empty one", 0.85, res.ratio("full", "conns-64", rateOfSample)),
		atLeast("rate with commits 1 ms slower, 256 connections", 0.7, res.ratio("slow-1", "conns-256", rateOfSample)),
		atMost("RSS after start", 40, res.find("ours").Median.RSSStart).in(" MiB"),
		atMost("peak RSS at 1024 connections", 160, at1024.Peak).in(" MiB"),
	}
	all = append(all, randomTargets(res, "full", "full-random")...)
	for _, engine := range [][2]string{{"ours", "SQLite"}, {"postgres", "PostgreSQL"}} {
		for _, edit := range []request{replace, remove} {
			ratio := res.ratio(engine[0]+"-"+string(edit), engine[0], rateOfSample)
			all = append(all, atLeast(fmt.Sprintf("rate of %s to create on %s", edit, engine[1]), 0.6, ratio))
		}
	}
	return append(all,
		atLeast("get to the bare handler, 64 connections", 0.65, res.ratio("get-64", "get-64-bare", rateOfSample)),
		atLeast("get to PocketBase, 64 connections", 10, res.ratio("get-64", "get-64-pocketbase", rateOfSample)),
		atLeast("JSON in lists of 1000, 64 connections", 1, gigabytes).in(" GB/min"),
		atMost("p99 of get while 64 other connections create", 10, res.find("get-busy").Median.P99/1000).in(" ms"),
	)
}

// minuteTargets are those of the rows that run for a minute.
func minuteTargets(res result) (all []target) {
	for _, l := range res.Rows {
		what := "longest response: " + l.Title
		if stolen := l.Median.Stolen; stolen >= 0.01 {
			what += fmt.Sprintf(" (disturbed: other virtual machines used %.2f cores)", stolen)
		}
		all = append(all, atMost(what, 100, l.Median.Max/1000).in(" ms"))
	}
	worst, tail := longestTail(res)
	all = append(all, atMost("p99.9 to the median; highest: "+worst, 8, tail))
	return append(all, randomTargets(res, "minute-full", "minute-random")...)
}

// randomTargets compares creates with ascending and with random ids in the store with many plants.
func randomTargets(res result, ascending, random string) []target {
	return []target{
		atLeast("rate of random ids to ascending ids, many plants", 0.5, res.ratio(random, ascending, rateOfSample)),
		atMost("written for each create with a random id, many plants", 8, res.find(random).Median.Bytes/1024).in(" KiB"),
	}
}

func atLeast(what string, want, found float64) target {
	return target{What: what, Want: fmt.Sprintf("≥ %.4g", want), Found: found, State: state(found, found >= want)}
}

func atMost(what string, want, found float64) target {
	return target{What: what, Want: fmt.Sprintf("≤ %.4g", want), Found: found, State: state(found, found <= want)}
}

// in adds a unit.
func (t target) in(unit string) target {
	t.Want, t.unit = t.Want+unit, unit
	return t
}

func state(found float64, ok bool) string {
	switch {
	case found == 0:
		return "not measured"
	case ok:
		return "met"
	}
	return "missed"
}

// pastPeak returns the lowest rate at the peak's number of connections or more, as a share of the peak.
// With fewer connections, latency and not the service determines the rate.
func pastPeak(res result) float64 {
	var peak, lowest float64
	for _, n := range []int{1, 8, 64, 256, 1024} {
		rate := res.find(fmt.Sprintf("conns-%d", n)).Median.Rate
		if rate == 0 {
			return 0
		}
		if rate > peak {
			peak, lowest = rate, rate
		}
		lowest = min(lowest, rate)
	}
	return lowest / peak
}

// longestTail returns the row of the service with 64 connections that has the highest tail.
func longestTail(res result) (title string, tail float64) {
	for _, l := range res.Rows {
		if l.Product && l.Conns == 64 && l.tail() > tail {
			title, tail = l.Title, l.tail()
		}
	}
	return title, tail
}

// tail returns p99.9 as a multiple of the median, or 0 if the row was not measured.
func (l line) tail() float64 { return l.Median.P999 / max(1, l.Median.P50) }
