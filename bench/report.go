package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
)

var columns = []string{"", "creates/s", "ratio", "p50 ms", "p99 ms", "p99.9 ms", "CPU µs", "bytes", "RSS MiB", "peak MiB"}

// cells are the rows of the table, without its head.
func (res result) cells() [][]string {
	var all [][]string
	for _, l := range res.Rows {
		m := l.Median
		if len(l.Rounds) == 0 {
			all = append(all, []string{l.Title, "—", "—", "—", "—", "—", "—", "—", "—", "—"})
			continue
		}
		cpu, rss, peak := fmt.Sprintf("%.1f", m.CPU), fmt.Sprintf("%.0f → %.0f", m.RSSStart, m.RSS), fmt.Sprintf("%.0f", m.Peak)
		if m.EngineCPU > 0 && m.CPU > 0 {
			cpu = fmt.Sprintf("%.1f + %.1f", m.CPU, m.EngineCPU)
		} else if m.EngineCPU > 0 {
			cpu, rss, peak = fmt.Sprintf("%.1f", m.EngineCPU), "—", "—"
		}
		all = append(all, []string{
			l.Title, thousands(m.Rate), orDash(l.Ratio), millis(m.P50), millis(m.P99), millis(m.P999), cpu, thousands(m.Bytes), rss, peak,
		})
	}
	return all
}

func orDash(ratio float64) string {
	if ratio == 0 {
		return "—"
	}
	return fmt.Sprintf("%.2f", ratio)
}

func millis(micros float64) string { return fmt.Sprintf("%.2f", micros/1000) }

// thousands writes a number without decimals, in groups of three digits.
func thousands(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// notes say what a reader has to know to read the table.
func (res result) notes() []string {
	notes := []string{
		"Medians of the rounds. Ratios are taken round by round: within one run they are what counts; absolute figures are this machine's.",
		"Ratio: creates/s to (a) for the first rows, to (d) on PostgreSQL, and to the row with 64 connections (1 for a lone client, 256 for slower commits) below.",
		"64 connections, 10-byte names, ascending ids and an empty store where a row does not say otherwise. The client waits for each answer on a connection before it sends again.",
		"CPU: user and system time of the server for each create; after a + that of PostgreSQL. Bytes: handed to the block layer for each create. RSS: after start → under load.",
		"Every answer was checked to be 200, and the rows were counted afterwards.",
		"(c) keeps its defaults: synchronous=NORMAL, so a power cut can take back what it has confirmed, and a request log. Plant Store and (b) run with synchronous=FULL, PostgreSQL with fsync and synchronous_commit on.",
	}
	if len(res.Faults) > 0 {
		notes[4] = "NOT TO BE TRUSTED: " + strings.Join(res.Faults, "; ")
	}
	if load, others := res.disturbance(); load > 0 {
		notes = append(notes, fmt.Sprintf("The load process took %.1f µs of CPU for each create, and everything else on the machine %.2f of %s; both are medians over all runs.", load, others, plural(res.Machine.Cores, "core")))
	}
	for _, l := range res.Rows {
		if l.Skipped != "" {
			notes = append(notes, fmt.Sprintf("%s: %s.", l.Title, strings.TrimSuffix(l.Skipped, ".")))
		}
	}
	return notes
}

// disturbance is what took CPU from the servers: the load, in µs for each create, and other
// processes, in cores.
func (res result) disturbance() (load, others float64) {
	var loads, rest []float64
	for _, l := range res.Rows {
		for _, s := range l.Rounds {
			if s.LoadCPU > 0 {
				loads, rest = append(loads, s.LoadCPU), append(rest, s.Others)
			}
		}
	}
	return median(loads), median(rest)
}

func (res result) about() string {
	m := res.Machine
	return fmt.Sprintf("%s, %s, %s, %s, %s; pwrite of 4 KiB + fdatasync: median %.0f µs, p99 %.0f µs; %s, the whole run took %s",
		plural(m.Cores, "core"), m.CPU, m.Kernel, m.Go, m.FileSystem, m.Sync, m.Sync99, res.Date, res.Took)
}

// print writes the table for a person at a terminal.
func (res result) print(out io.Writer) {
	fmt.Fprintf(out, "%s\n\n", res.about())
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, cells := range res.cells() {
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	fmt.Fprintln(w)
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
		return fmt.Sprintf("%.0f%s", t.Found, t.unit)
	}
	return fmt.Sprintf("%.2f", t.Found)
}

const (
	beginMark = "<!-- bench:begin -->"
	endMark   = "<!-- bench:end -->"
	emptyPage = "# Benchmarks\n\n" + beginMark + "\n" + endMark + "\n"
)

// writeMarkdown replaces what stands between the marks, and nothing else.
func (res result) writeMarkdown(path string) error {
	page, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = []byte(emptyPage), nil
	}
	if err != nil {
		return err
	}
	text, err := between(string(page), res.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func between(page, text string) (string, error) {
	head, rest, ok := strings.Cut(page, beginMark)
	_, tail, closed := strings.Cut(rest, endMark)
	if !ok || !closed {
		return "", fmt.Errorf("expected the marks %s and %s", beginMark, endMark)
	}
	return head + beginMark + "\n" + text + endMark + tail, nil
}

func (res result) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "![Creates per second of each contender](benchmarks.svg)\n\nMeasured with `make bench` on: %s.\n\n", res.about())
	fmt.Fprintf(&b, "| %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)-1))
	for _, cells := range res.cells() {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n")
	for _, note := range res.notes() {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	b.WriteString("\n| target | wanted | found | |\n|---|---:|---:|---|\n")
	for _, t := range res.Targets {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.What, t.Want, t.found(), t.State)
	}
	return b.String()
}
