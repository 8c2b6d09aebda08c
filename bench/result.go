package main

import "time"

// result contains all figures of a run.
type result struct {
	Date    string   `json:"date"`
	Took    string   `json:"took"`
	Machine machine  `json:"machine"`
	Rows    []line   `json:"rows"`
	Targets []target `json:"targets"`
	Faults  []string `json:"faults"`

	Repeated int `json:"repeated"` // repetitions of runs that other virtual machines disturbed
	report   report
}

// report is what explains the tables of a run.
type report struct {
	targets func(result) []target
	notes   []string
}

// line is a row with the medians of its rounds.
type line struct {
	Key     string   `json:"key"`
	Title   string   `json:"title"`
	Request request  `json:"request"`
	Product bool     `json:"product"` // it measures the service itself
	Conns   int      `json:"connections"`
	Median  sample   `json:"median"`
	Ratio   float64  `json:"ratio,omitempty"` // median of the rounds' ratios to the row Base; 0 for none
	Base    string   `json:"base"`
	Rounds  []sample `json:"rounds"`
	Skipped string   `json:"skipped,omitempty"`
}

func newResult(m machine, rows []*row, faults []string, began time.Time, report report) result {
	took := time.Since(began).Round(time.Second).String()
	res := result{Date: began.Format(time.DateOnly), Took: took, Machine: m, Faults: faults, report: report}
	for _, r := range rows {
		res.Rows = append(res.Rows, line{
			Key: r.Key, Title: r.Title, Request: r.request, Product: r.kind.isProduct(), Conns: r.conns, Base: r.Base,
			Rounds: r.samples, Skipped: r.skipped, Median: combine(r.samples, median),
		})
	}
	for i, l := range res.Rows {
		res.Rows[i].Ratio = res.ratio(l.Key, l.Base, rateOfSample)
	}
	res.Targets = report.targets(res)
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
	return median(res.ratios(key, base, of))
}

func (res result) ratios(key, base string, of func(sample) float64) (ratios []float64) {
	a, b := res.find(key).Rounds, res.find(base).Rounds
	for i := range min(len(a), len(b)) {
		if under := of(b[i]); under > 0 {
			ratios = append(ratios, of(a[i])/under)
		}
	}
	return ratios
}

// figures are the fields of a sample.
func (s *sample) figures() []*float64 {
	return []*float64{
		&s.Rate, &s.P50, &s.P99, &s.P999, &s.Max, &s.CPU, &s.EngineCPU, &s.WorkerCPU, &s.Bytes, &s.RSSStart, &s.RSS, &s.Peak,
		&s.Body, &s.Beside, &s.LoadCPU, &s.Others, &s.Stolen,
	}
}

// combine makes one sample of several, such as of their medians.
func combine(samples []sample, by func([]float64) float64) (all sample) {
	for i, figure := range all.figures() {
		values := make([]float64, len(samples))
		for j := range samples {
			values[j] = *samples[j].figures()[i]
		}
		*figure = by(values)
	}
	return all
}
