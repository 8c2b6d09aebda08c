package main

import (
	"fmt"
	"html"
	"strings"
)

const (
	chartWidth = 800
	barsFrom   = 330 // left end of the bars
	barsWide   = 240 // of the longest bar; values are to the right of it
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
	keys := []string{"bare", "none", "ours", "single", "pocketbase", "pocketbase-quiet", "postgres", "pgbench"}
	for _, key := range keys {
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
	b.WriteString(`<text id="note" class="small" x="16" y="58">On disk before the response is sent, except: ` +
		`(a) and (g) store nothing, (c) may lose the latest, (d) is SQL without HTTP.</text>` + "\n")
	for i, l := range rows {
		class, y := "other", barsTop+i*barStep
		if strings.HasPrefix(l.Title, "Plant Store") {
			class = "ours"
		}
		width := max(2, l.Median.Rate/max(1, most)*barsWide)
		fmt.Fprintf(&b, `<g class="%s"><text class="name" x="%d" y="%d" text-anchor="end">%s</text>`,
			class, barsFrom-10, y+18, html.EscapeString(l.Title))
		fmt.Fprintf(&b, `<rect class="bar" x="%d" y="%d" width="%.1f" height="%d" rx="3"/>`, barsFrom, y, width, barHigh)
		fmt.Fprintf(&b, `<text class="value" x="%.1f" y="%d">%s%s</text></g>`+"\n",
			barsFrom+width+8, y+18, thousands(l.Median.Rate), res.against(l))
	}
	fmt.Fprintf(&b, `<text class="small" x="16" y="%d">Median of %s, interleaved, %s.</text>`+"\n</svg>\n",
		height-12, plural(len(res.find("ours").Rounds), "round"), res.Date)
	return []byte(b.String())
}

// against returns the rate of the service as a multiple of a contender's.
func (res result) against(l line) string {
	ours := "ours"
	if l.Key == "pgbench" {
		ours = "postgres"
	}
	ratio := res.ratio(ours, l.Key, rateOfSample)
	if ratio == 0 || l.Key == "ours" || l.Key == "postgres" {
		return ""
	}
	return fmt.Sprintf(" · Plant Store: %.3g ×", ratio)
}
