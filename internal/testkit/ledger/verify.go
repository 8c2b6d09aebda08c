package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of verify. The counts are of attempts since the last verify.
type Report struct {
	Intents, Acks, Refused, Unknown int

	Stored, Absent int // how many unknown attempts were found stored, and how many not
	Lost           int // acknowledged plants, of any time, that are missing or changed
	Violations     []string
}

// retryTime is how long verify repeats an attempt whose outcome stays unknown.
const retryTime = 30 * time.Second

// verify compares what is stored with the ledger. Then it repeats each unknown attempt until its outcome is known, and
// compares again.
func verify(s *service, l *ledger, limit time.Duration) (*Report, error) {
	stored, err := list(s)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	r.compare(l.attempts, stored)
	var retries []*attempt
	for _, n := range slices.Sorted(maps.Keys(l.attempts)) {
		if l.verified[n] {
			continue
		}
		a := l.attempts[n]
		r.Intents++
		switch a.outcome {
		case acked:
			r.Acks++
		case refused:
			r.Refused++
		case unknown:
			r.Unknown++
			if stored[a.id] == a.body {
				r.Stored++
			} else {
				r.Absent++
			}
			retries = append(retries, a)
		}
	}
	for _, a := range retries {
		if err := r.retry(s, l, a, limit); err != nil {
			return nil, err
		}
	}
	if stored, err = list(s); err != nil {
		return nil, err
	}
	if len(r.Violations) == 0 { // Otherwise each would be reported twice.
		r.compare(l.attempts, stored)
	}
	return r, l.write("VERIFIED\n")
}

// retry repeats an attempt until a response has a definite outcome.
func (r *Report) retry(s *service, l *ledger, before *attempt, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		l.last++
		a := &attempt{n: l.last, kind: before.kind, id: before.id, body: before.body}
		l.attempts[a.n] = a
		if _, err := a.send(s, l); err != nil {
			return err
		}
		if a.outcome == acked || a.outcome == refused && strings.HasPrefix(a.response, "400") {
			return nil // compare checks that it is the right one.
		}
		if time.Now().After(deadline) {
			r.violation("plant %d was sent again for %v and is still %s %s", a.id, limit, a.outcome, a.response)
			return nil
		}
	}
}

// list reads every plant of the store, as the service encodes it.
func list(s *service) (map[int64]string, error) {
	stored := map[int64]string{}
	for path := "/plants?limit=1000"; ; {
		response, text, err := s.do("GET", path, "")
		if err != nil {
			return nil, err
		}
		var page []json.RawMessage
		if err := json.Unmarshal(text, &page); err != nil || response.StatusCode != 200 {
			return nil, fmt.Errorf("GET %s: %d %.200q", path, response.StatusCode, text)
		}
		var p struct{ ID int64 }
		for _, raw := range page {
			if err := json.Unmarshal(raw, &p); err != nil {
				return nil, err
			}
			if _, twice := stored[p.ID]; twice {
				return nil, fmt.Errorf("plant %d is listed twice", p.ID)
			}
			stored[p.ID] = string(raw)
		}
		if response.Header.Get("Link") == "" {
			return stored, nil
		}
		if len(page) == 0 {
			return nil, errors.New("an empty page links to a next page")
		}
		path = fmt.Sprintf("/plants?limit=1000&after=%d", p.ID)
	}
}

// expectation is what the ledger promises about one id.
type expectation struct {
	body      string // the plant that was sent, or "" if only wrong ones were
	must, may bool   // whether it must, or may, be stored
}

// compare reports every difference between the ledger and what is stored.
func (r *Report) compare(attempts map[int64]*attempt, stored map[int64]string) {
	expected := map[int64]*expectation{}
	for _, n := range slices.Sorted(maps.Keys(attempts)) {
		a := attempts[n]
		r.checkResponse(a)
		c := expected[a.id]
		if c == nil {
			c = new(expectation)
			expected[a.id] = c
		}
		if a.kind == fresh || a.kind == again {
			c.body = a.body
			c.must = c.must || a.outcome == acked
			c.may = c.may || a.outcome == unknown
		}
	}
	for _, id := range slices.Sorted(maps.Keys(expected)) {
		switch c, found := expected[id], stored[id]; {
		case found == "" && c.must:
			r.Lost++
			r.violation("plant %d was acknowledged and is lost", id)
		case found == "": // refused, wrong or unknown
		case !c.must && !c.may:
			r.violation("plant %d was refused and is stored", id)
		case found != c.body && c.must:
			r.Lost++
			r.violation("plant %d was acknowledged and is stored differently: %.200s, want %.200s", id, found, c.body)
		case found != c.body:
			r.violation("plant %d is stored differently than it was sent: %.200s, want %.200s", id, found, c.body)
		}
	}
	for id := range stored {
		if expected[id] == nil {
			r.violation("plant %d was never sent and is stored", id)
		}
	}
}

// checkResponse reports a response that is impossible for its request.
func (r *Report) checkResponse(a *attempt) {
	is400 := strings.HasPrefix(a.response, "400")
	ok := true
	switch a.outcome {
	case acked:
		id := fmt.Sprintf(`"id":%d,`, a.id)
		ok = (a.kind == fresh || a.kind == again) && a.response == strings.Replace(a.body, id, "", 1)
	case refused:
		ok = !is400 || a.kind == taken && a.response == "40009" || a.kind == wrong && a.response != "40009"
	case unknown:
		ok = a.response == none || a.response == "50302"
	}
	if !ok {
		r.violation("a %s plant %d got %s %.200s", a.kind, a.id, a.outcome, a.response)
	}
}

func (r *Report) violation(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}
