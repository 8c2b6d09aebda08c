package main

import (
	"fmt"
	"html"
	"strings"
)

const (
	chartWidth = 800
	barsFrom   = 330 // left end of the bars
	barsWide   = 370 // of the longest bar; values are to the right of it
	barHigh    = 26
	barStep    = 42
	barsTop    = 84
)

// chartStyle follows the reader's light or dark page; the chart has no background of its own.
const chartStyle = `text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2328 }
.title { font-size: 19px; font-weight: 600 }
.small { font-size: 13px; fill: #59636e }
.name, .value { font-size: 14px }
.ours .value, .ours .name { font-weight: 600 }
.bar { fill: #8c959f }
.ours .bar { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .small { fill: #9198a1 }
  .bar { fill: #6e7681 }
  .ours .bar { fill: #3fb950 }
}`

// chart draws the contenders' rates as bars.
func chart(res result) []byte {
	var rows []line
	var most float64
	for _, key := range []string{"bare", "ours", "postgres", "pgbench", "single", "pocketbase"} {
		if l := res.find(key); len(l.Rounds) > 0 {
			rows = append(rows, l)
			most = max(most, l.Median.Rate)
		}
	}
	height := barsTop + barStep*len(rows) + 30
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d"`+
		` role="img" aria-labelledby="title note">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, "<style>\n%s\n</style>\n", chartStyle)
	fmt.Fprintf(&b, `<text id="title" class="title" x="16" y="34">Creates per second, 64 connections, %s</text>`+"\n",
		plural(res.Machine.Cores, "core"))
	b.WriteString(`<text id="note" class="small" x="16" y="58">Each create is on disk before its response, except where ` +
		`a row says otherwise.</text>` + "\n")
	for i, l := range rows {
		class, y := "other", barsTop+i*barStep
		if l.Product {
			class = "ours"
		}
		width := max(2, l.Median.Rate/max(1, most)*barsWide)
		fmt.Fprintf(&b, `<g class="%s"><text class="name" x="%d" y="%d" text-anchor="end">%s</text>`,
			class, barsFrom-10, y+18, html.EscapeString(chartTitle(l)))
		fmt.Fprintf(&b, `<rect class="bar" x="%d" y="%d" width="%.1f" height="%d" rx="3"/>`, barsFrom, y, width, barHigh)
		fmt.Fprintf(&b, `<text class="value" x="%.1f" y="%d">%s</text></g>`+"\n",
			barsFrom+width+8, y+18, thousands(l.Median.Rate))
	}
	fmt.Fprintf(&b, `<text class="small" x="16" y="%d">Median of %s, interleaved, %s.</text>`+"\n</svg>\n",
		height-12, plural(len(res.find("ours").Rounds), "round"), res.Date)
	return []byte(b.String())
}

// chartTitle names the engine of the service, and what a contender does not do.
func chartTitle(l line) string {
	switch l.Key {
	case "ours":
		return l.Title + " on SQLite"
	case "pocketbase":
		return "PocketBase, may lose the latest creates"
	}
	return l.Title
}
