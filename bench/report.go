package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// table is a part of the report.
type table struct {
	header []string
	rows   [][]string
}

// tables are the rows that write, those that read, and those with a single time. One without rows is omitted.
func (res result) tables() (all []table) {
	latency := []string{"p50 ms", "p99 ms", "p99.9 ms", "max ms"}
	writes := table{header: slices.Concat([]string{"", "requests/s", "ratio"}, latency,
		[]string{"CPU µs", "bytes", "RSS MiB", "peak MiB"})}
	reads := table{header: slices.Concat([]string{"reads", "requests/s", "ratio"}, latency, []string{"CPU µs", "MB/s"})}
	times := table{header: []string{"times", "ratio", "median ms", "max ms"}}
	for _, l := range res.Rows {
		if l.Request.isTimed() {
			cells := []string{l.Title, orDash(l.Ratio), millis(l.Median.P50), millis(l.longest())}
			if l.Skipped != "" || len(l.Rounds) == 0 {
				cells = []string{l.Title, "—", "—", "—"}
			}
			times.rows = append(times.rows, cells)
			continue
		}
		if l.Request.isRead() {
			reads.rows = append(reads.rows, l.cells(len(reads.header), orDash(l.Median.Body)))
			continue
		}
		m := l.Median
		rss, peak := fmt.Sprintf("%.0f → %.0f", m.RSSStart, m.RSS), fmt.Sprintf("%.0f", m.Peak)
		if m.RSS == 0 {
			rss, peak = "—", "—"
		}
		writes.rows = append(writes.rows, l.cells(len(writes.header), thousands(m.Bytes), rss, peak))
	}
	for _, t := range []table{writes, reads, times} {
		if len(t.rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// cells returns a row of a table: what all rows have, and the rest.
func (l line) cells(columns int, rest ...string) []string {
	m := l.Median
	if len(l.Rounds) == 0 {
		return append([]string{l.Title}, slices.Repeat([]string{"—"}, columns-1)...)
	}
	var cpu []string
	for _, part := range []float64{m.CPU, m.EngineCPU, m.WorkerCPU} {
		if part > 0 {
			cpu = append(cpu, fmt.Sprintf("%.1f", part))
		}
	}
	longest := "—"
	if m.Max > 0 {
		longest = millis(m.Max)
	}
	return append([]string{
		l.Title, thousands(m.Rate), orDash(l.Ratio), millis(m.P50), millis(m.P99), millis(m.P999), longest,
		strings.Join(cpu, " + "),
	}, rest...)
}

// longest returns the longest time of all rounds.
func (l line) longest() (longest float64) {
	for _, s := range l.Rounds {
		longest = max(longest, s.Max)
	}
	return longest
}

func orDash(figure float64) string {
	if figure == 0 {
		return "—"
	}
	return fmt.Sprintf("%.2f", figure)
}

func millis(micros float64) string { return fmt.Sprintf("%.2f", micros/1000) }

// thousands writes a number without decimals, in groups of three digits.
func thousands(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// comparison is the report of the service and other systems.
var comparison = report{targets: targets, notes: []string{
	"Rows are creates unless they say otherwise. Ratio: requests/s to our HTTP stack without a store for the first " +
		"rows, to pgbench on PostgreSQL, to one PostgreSQL server on Citus, to the creates of the same engine for replace " +
		"and remove, and to the row with 64 connections (1 for a single client, 256 for slower commits) below.",
	"64 connections, 10-byte names, ascending ids and an empty store unless a row says otherwise. " +
		"Each connection has one request in flight.",
	"CPU: user and system time of the server for each request; after a + that of PostgreSQL, on Citus of the " +
		"coordinator and, after another +, of all workers. " +
		"Bytes: written to the block layer for each request. RSS: after start → under load. " +
		"Max: the longest response of a round; the table has the median of the rounds.",
	"All nodes of Citus share this machine with the service and the load, so more workers are not faster here. " +
		"Reading all plants is one client that lists 100,000 plants in pages of 1000: plants/s, and CPU for each plant.",
	"The bare handler is net/http with routes and timeouts, a token found by its hash, and encoding/json, read token by " +
		"token so that duplicate members are refused. It sends the same response, stores nothing, reads a plant from " +
		"memory, and has no limits on connections, memory and rates, no metrics and no log.",
	"PocketBase keeps its defaults: a request log, and synchronous=NORMAL, so that a power cut can undo confirmed " +
		"creates. The others on SQLite run with synchronous=FULL, PostgreSQL with fsync and synchronous_commit on.",
	"Replace and remove change another plant each time, in a store that starts with as many as the one for reads.",
	"Reads choose plants at random in a store of 1,000,000; every get must return its id, every list its " +
		"first id and as many plants as it asked for. Ratio: requests/s to Plant Store on SQLite with the same requests " +
		"and connections. MB/s: JSON of the responses. PocketBase lists with a filter on its ids and skipTotal. pgbench " +
		"sends prepared selects of the same table; its CPU at 1024 connections includes the start of as many processes. " +
		"Where 64 other connections create, rate and latency are those of the gets.",
	"On separate cores: the service has one, with GOMAXPROCS=1, and the load another, so that they do not compete.",
}}

// notes explain the tables.
func (res result) notes() []string {
	valid := "Every response was 200 (204 for a remove), and the plants were counted afterwards."
	if len(res.Faults) > 0 {
		valid = "NOT VALID: " + strings.Join(res.Faults, "; ")
	}
	notes := append([]string{
		valid,
		"Medians of the rounds. Ratios are computed round by round; compare them, not absolute figures, because " +
			"those depend on the machine.",
	}, res.report.notes...)
	if load, others, stolen := res.disturbance(); load > 0 {
		notes = append(notes, fmt.Sprintf("The load process used %.1f µs of CPU for each request, all other processes "+
			"%.2f of %s, and other virtual machines %.2f; these are medians over all runs.",
			load, others, plural(res.Machine.Cores, "core"), stolen))
	}
	if res.Repeated > 0 {
		notes = append(notes, fmt.Sprintf("A run was repeated, up to %d times, if other virtual machines used more than "+
			"%.2f cores meanwhile (for counts and starts: %.2f s of a core); the least disturbed one is reported. "+
			"Repetitions: %d. Reported runs above the limit: %d.",
			maxRepeats, create.maxStolen(), restart.maxStolen(), res.Repeated, res.disturbed()))
	}
	for _, l := range res.Rows {
		if beside := l.Median.Beside; beside > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s creates/s on the others.", l.Title, thousands(beside)))
		}
		if l.Skipped != "" {
			notes = append(notes, fmt.Sprintf("%s: %s.", l.Title, strings.TrimSuffix(l.Skipped, ".")))
		}
	}
	return notes
}

// disturbance returns the CPU that was not available to the servers: the load, in µs for each request,
// and other processes and virtual machines, in cores.
func (res result) disturbance() (load, others, stolen float64) {
	var loads, rest, lost []float64
	for _, l := range res.Rows {
		for _, s := range l.Rounds {
			if s.LoadCPU > 0 {
				loads, rest, lost = append(loads, s.LoadCPU), append(rest, s.Others), append(lost, s.Stolen)
			}
		}
	}
	return median(loads), median(rest), median(lost)
}

// disturbed returns the number of runs during which other virtual machines used much of the machine.
func (res result) disturbed() (n int) {
	for _, l := range res.Rows {
		for _, s := range l.Rounds {
			if s.Stolen > l.Request.maxStolen() {
				n++
			}
		}
	}
	return n
}

func (res result) about() string {
	m := res.Machine
	return fmt.Sprintf("%s, %s, %s, %s, %s; pwrite of 4 KiB + fdatasync: median %.0f µs, p99 %.0f µs; "+
		"%s, the whole run took %s",
		plural(m.Cores, "core"), m.CPU, m.Kernel, m.Go, m.FileSystem, m.Sync, m.Sync99, res.Date, res.Took)
}

// print writes the table for a terminal.
func (res result) print(out io.Writer) {
	fmt.Fprintf(out, "%s\n\n", res.about())
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, t := range res.tables() {
		for _, cells := range append([][]string{t.header}, t.rows...) {
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "target\twanted\tfound\t")
	for _, t := range res.Targets {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.What, t.Want, t.found(), t.State)
	}
	w.Flush()
	fmt.Fprintf(out, "\n%s\n", strings.Join(res.notes(), "\n"))
}

func (t target) found() string {
	if t.State == "not measured" {
		return "—"
	}
	if t.unit != "" {
		return fmt.Sprintf("%.3g%s", t.Found, t.unit)
	}
	return fmt.Sprintf("%.2f", t.Found)
}
