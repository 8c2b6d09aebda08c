package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
)

// change is how a figure of a row differs between an old and a new version.
type change struct {
	Row    string   `json:"row"`
	Figure string   `json:"figure"`
	Old    float64  `json:"old"`
	New    float64  `json:"new"`
	Ratio  interval `json:"ratio"` // of new to old
	better int      // the sign of a change for the better; 0 if the machine may be the reason for a change
}

// figures are what versions are compared by.
var figures = []struct {
	name   string
	of     func(sample) float64
	better int
}{
	{"requests/s", rateOfSample, 1},
	{"CPU µs", func(s sample) float64 { return s.CPU + s.EngineCPU + s.WorkerCPU }, -1},
	{"p50 µs", func(s sample) float64 { return s.P50 }, -1},
	{"p99.9 µs", func(s sample) float64 { return s.P999 }, -1},
	{"bytes", func(s sample) float64 { return s.Bytes }, -1},
}

// compareRounds compares two rows by every figure that both have.
func compareRounds(title string, old, new []sample, estimate func(old, new []float64) interval) (all []change) {
	for _, f := range figures {
		was, is := each(old, f.of), each(new, f.of)
		if c, ok := compareValues(title, f.name, was, is, estimate); ok {
			c.better = f.better
			all = append(all, c)
		}
	}
	return all
}

func compareValues(
	title, figure string, old, new []float64, estimate func(old, new []float64) interval,
) (change, bool) {
	if len(old) == 0 || len(new) == 0 || median(old) == 0 || median(new) == 0 {
		return change{}, false
	}
	return change{title, figure, median(old), median(new), estimate(old, new), 1}, true
}

func each(samples []sample, of func(sample) float64) (values []float64) {
	for _, s := range samples {
		values = append(values, of(s))
	}
	return values
}

// since compares a result with an earlier one, row by row. Only changes of the ratio to another row of the same run are
// marked: the speed of the machine changes all other figures from run to run.
func (res result) since(old result) (all []change) {
	for _, l := range res.Rows {
		was := old.find(l.Key)
		for _, c := range compareRounds(l.Title, was.Rounds, l.Rounds, unpairedRatio) {
			c.better = 0
			all = append(all, c)
		}
		if l.Base == "" || l.Base == l.Key || l.Base != was.Base {
			continue
		}
		before, now := old.ratios(l.Key, l.Base, rateOfSample), res.ratios(l.Key, l.Base, rateOfSample)
		if c, ok := compareValues(l.Title, "ratio", before, now, unpairedRatio); ok {
			all = append(all, c)
		}
	}
	return all
}

// printSince writes the comparison with an earlier result.
func (res result) printSince(out io.Writer, old result) {
	fmt.Fprintf(out, "\nOld: %s.\nNew: %s.\n\n", old.about(), res.about())
	printChanges(out, res.since(old))
	fmt.Fprintln(out, "\nOld and new are medians of the rounds. Better and WORSE mark changes of ratios whose interval "+
		"excludes zero. Other\nfigures are not marked, because the machine may have been slower or faster during one of "+
		"the runs: use make compare.")
}

func readResult(file string) (res result, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return res, err
	}
	if err := json.Unmarshal(text, &res); err != nil {
		return res, fmt.Errorf("%s is not what --save writes: %w", file, err)
	}
	return res, nil
}

// printChanges writes the table of a comparison.
func printChanges(out io.Writer, changes []change) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\tfigure\told\tnew\tchange\t95 % interval\t")
	row := ""
	for _, c := range changes {
		title := c.Row
		if title == row {
			title = ""
		}
		row = c.Row
		fmt.Fprintln(w, strings.Join([]string{
			title, c.Figure, amount(c.Old), amount(c.New), percent(c.Ratio.Estimate), c.bounds(), c.verdict(),
		}, "\t"))
	}
	w.Flush()
}

func amount(figure float64) string {
	if figure < 100 {
		return fmt.Sprintf("%.2f", figure)
	}
	return thousands(figure)
}

func percent(ratio float64) string { return fmt.Sprintf("%+.1f %%", 100*(ratio-1)) }

func (c change) bounds() string {
	if c.Ratio.High == math.MaxFloat64 {
		return "too few rounds"
	}
	return percent(c.Ratio.Low) + " … " + percent(c.Ratio.High)
}

// verdict names a change whose interval excludes zero.
func (c change) verdict() string {
	switch up := c.Ratio.Low > 1; {
	case c.better == 0 || !c.Ratio.excludes(1):
		return ""
	case up == (c.better > 0):
		return "better"
	}
	return "WORSE"
}
