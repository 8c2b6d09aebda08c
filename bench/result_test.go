package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"
)

// sampleResult has a slow second round, which a ratio of medians would not survive.
func sampleResult() result {
	rates := func(values ...float64) (all []sample) {
		for _, v := range values {
			all = append(all, sample{Rate: v, CPU: 1e6 / v, P50: 100, LoadCPU: 9})
		}
		return all
	}
	return newResult(machine{Cores: 2, CPU: "a CPU"}, []*row{
		{Key: "ours", Title: "Plant Store", Base: "none", samples: rates(800, 80, 700)},
		{Key: "none", Title: "our HTTP stack", Base: "none", samples: rates(1000, 100, 1000)},
		{Key: "bare", Title: "bare handler", Base: "none", samples: rates(1000, 100, 1000)},
		{Key: "postgres", Title: "Plant Store on PostgreSQL", Base: "pgbench", skipped: "no server"},
		{Key: "conns-1", samples: rates(10)}, {Key: "conns-8", samples: rates(100)}, {Key: "conns-64", samples: rates(90)},
		{Key: "conns-256", samples: rates(70)}, {Key: "conns-1024", samples: rates(95)},
	}, nil, time.Now(), comparison)
}

func TestRatioIsTheMedianOfTheRounds(t *testing.T) {
	res := sampleResult()
	if got, want := res.find("ours").Ratio, 0.8; got != want {
		t.Errorf("ratio = %v, want %v", got, want)
	}
	if got := res.ratio("ours", "single", rateOfSample); got != 0 {
		t.Errorf("ratio to a row that was not measured = %v, want 0", got)
	}
}

func TestTargets(t *testing.T) {
	want := map[string]string{
		"rate to a bare handler": "met", "rate to one transaction": "not measured",
		"lowest rate past": "missed", "CPU per create": "met",
	}
	for _, found := range sampleResult().Targets {
		for what, state := range want {
			if strings.HasPrefix(found.What, what) && found.State != state {
				t.Errorf("%s: found %v, %s; want %s", found.What, found.Found, found.State, state)
			}
		}
	}
	if got, want := pastPeak(sampleResult()), 0.7; got != want {
		t.Errorf("pastPeak = %v, want %v", got, want)
	}
}

func TestReportsNameEveryRow(t *testing.T) {
	var table strings.Builder
	sampleResult().print(&table)
	for _, want := range []string{"Plant Store", "700", "0.80", "no server", "not measured"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, table.String())
		}
	}
	for _, want := range []string{
		"| create | 700 |", "| get | — |", "0.8 times the rate of a bare", "not measured: pg",
	} {
		if page := sampleResult().markdown(); !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestMarkdownKeepsTextOutsideTheMarkers(t *testing.T) {
	page, err := replacePart("before\n"+pageBegin+"old\n"+pageEnd+"after\n", "new\n")
	if want := "before\n" + pageBegin + "new\n" + pageEnd + "after\n"; err != nil || page != want {
		t.Errorf("replacePart = %q, %v; want %q", page, err, want)
	}
	if _, err := replacePart("a page without markers", "new"); err == nil {
		t.Error("a page without markers gave no error")
	}
}

func TestChartIsWellFormed(t *testing.T) {
	for d := xml.NewDecoder(strings.NewReader(string(chart(sampleResult())))); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%v) = %q, want %q", n, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	words := strings.TrimSpace(strings.Repeat("µ ", 60))
	want := strings.TrimSpace(strings.Repeat("µ ", 50)) + "\n  " + strings.TrimSpace(strings.Repeat("µ ", 10))
	if got := wrap(words, "  "); got != want {
		t.Errorf("wrap = %q, want %q", got, want)
	}
}
