package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	pageBegin = "<!-- bench:begin -->\n"
	pageEnd   = "<!-- bench:end -->\n"
)

// shown are the rows on the page: what a reader may expect of the service. The terminal and --json have all rows.
var shown = []struct{ key, title string }{
	{"ours", "create"},
	{"conns-1", "create, 1 connection"},
	{"conns-1024", "create, 1024 connections"},
	{"full-random", "create, random ids, large store"},
	{"postgres", "create on PostgreSQL"},
	{"get-64", "get"},
	{"list-100-64", "list of 100"},
	{"mixed-64", "90% get, 10% create"},
}

// contenders are the systems on the page: how the creates of the service compare, and whether that is fair.
var contenders = []struct{ ours, key, text string }{
	{"ours", "bare", "a bare handler of net/http and encoding/json, which makes the same checks and stores nothing"},
	{"ours", "single", "the same service with one transaction for each request. The difference is group commit"},
	{"ours", "pocketbase", "PocketBase with its defaults. It does more for each request, and a power cut can undo " +
		"its latest creates"},
	{"postgres", "pgbench", "pgbench, which sends single inserts in SQL to the same server, without HTTP and tokens"},
}

// writePage replaces the text between the markers of benchmarks.md in a folder, and the chart beside it.
func (res result) writePage(folder string) error {
	path := filepath.Join(folder, "benchmarks.md")
	page, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = []byte("# Benchmarks\n\n"+pageBegin+pageEnd), nil
	}
	if err != nil {
		return err
	}
	text, err := replacePart(string(page), res.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return errors.Join(os.WriteFile(path, []byte(text), 0o644),
		os.WriteFile(filepath.Join(folder, "benchmarks.svg"), chart(res), 0o644))
}

// replacePart puts text between the markers of a page.
func replacePart(page, text string) (string, error) {
	head, rest, ok := strings.Cut(page, pageBegin)
	_, tail, closed := strings.Cut(rest, pageEnd)
	if !ok || !closed {
		return "", fmt.Errorf("the markers %q and %q are missing", pageBegin, pageEnd)
	}
	return head + pageBegin + text + pageEnd + tail, nil
}

// markdown returns the chart, the rows that are shown, and the comparison with other systems.
func (res result) markdown() string {
	var b strings.Builder
	b.WriteString("![Creates per second of Plant Store and other systems](benchmarks.svg)\n\n")
	if len(res.Faults) > 0 {
		b.WriteString(wrap("NOT VALID: "+strings.Join(res.Faults, "; "), "") + "\n\n")
	}
	b.WriteString("|  | requests/s | p50 ms | p99 ms | p99.9 ms |\n|---|---:|---:|---:|---:|\n")
	for _, s := range shown {
		l := res.find(s.key)
		figures := []string{"—", "—", "—", "—"}
		if m := l.Median; len(l.Rounds) > 0 {
			figures = []string{thousands(m.Rate), millis(m.P50), millis(m.P99), millis(m.P999)}
		}
		fmt.Fprintf(&b, "| %s | %s |\n", s.title, strings.Join(figures, " | "))
	}
	b.WriteString("\n" + wrap("Measured on: "+res.about()+".", "") + "\n\nCreates of Plant Store reach\n\n")
	for _, c := range contenders {
		ratio := "not measured:"
		if found := res.ratio(c.ours, c.key, rateOfSample); found > 0 {
			ratio = fmt.Sprintf("%.3g times the rate of", found)
		}
		b.WriteString(wrap(fmt.Sprintf("- %s %s.", ratio, c.text), "  ") + "\n")
	}
	return b.String()
}

// wrap breaks a paragraph into lines of at most 100 characters and indents all but the first.
func wrap(text, indent string) string {
	const width = 100
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
