package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is the result of verify. The counts are of attempts since the last verify.
type Report struct {
	Intents, Acks, Refused, Unknown int

	Stored, Absent int // how many unknown attempts were found to have happened, and how many not
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
			if stored[a.id] == a.result() {
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
		if a.kind == drop {
			a.kind = gone
		}
		l.attempts[a.n] = a
		if _, err := a.send(s, l); err != nil {
			return err
		}
		if a.outcome == acked || a.outcome == refused && strings.HasPrefix(a.response, "40") {
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
	may   []string // what may be stored; "" is nothing
	acked *attempt // the last acknowledged one that changes what is stored
}

// result is what is stored once an attempt has happened.
func (a *attempt) result() string {
	if a.kind == drop || a.kind == gone {
		return ""
	}
	return a.body
}

// add applies an attempt. They are added in the order in which they were sent.
func (e *expectation) add(a *attempt) {
	switch {
	case a.kind == wrong || a.kind == taken: // nothing may happen
	case a.outcome == acked, a.kind == gone && a.response == strconv.Itoa(notFound):
		e.may, e.acked = []string{a.result()}, a
	case a.outcome == unknown:
		e.may = append(e.may, a.result())
	}
}

// compare reports every difference between the ledger and what is stored.
func (r *Report) compare(attempts map[int64]*attempt, stored map[int64]string) {
	expected := map[int64]*expectation{}
	for _, n := range slices.Sorted(maps.Keys(attempts)) {
		a := attempts[n]
		r.checkResponse(a)
		if expected[a.id] == nil {
			expected[a.id] = &expectation{may: []string{""}}
		}
		expected[a.id].add(a)
	}
	for _, id := range slices.Sorted(maps.Keys(expected)) {
		e, found := expected[id], stored[id]
		if slices.Contains(e.may, found) {
			continue
		}
		if e.acked != nil {
			r.Lost++
		}
		switch {
		case found == "":
			r.violation("plant %d was acknowledged and is lost", id)
		case e.acked != nil && e.acked.result() == "":
			r.violation("plant %d was removed and is stored", id)
		case e.acked != nil:
			r.violation("plant %d was acknowledged and is stored differently: %.200s, want %.200s", id, found, e.may)
		case len(e.may) == 1:
			r.violation("plant %d was refused and is stored", id)
		default:
			r.violation("plant %d is stored differently than it was sent: %.200s, want %.200s", id, found, e.may)
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
	ok := true
	switch a.outcome {
	case acked:
		ok = a.response == a.acknowledgement()
	case refused:
		ok = !strings.HasPrefix(a.response, "40") || a.kind == taken && a.response == "40009" ||
			a.kind == wrong && strings.HasPrefix(a.response, "400") && a.response != "40009" ||
			a.kind == gone && a.response == strconv.Itoa(notFound)
	case unknown:
		ok = a.response == none || a.response == "50302"
	}
	if !ok {
		r.violation("a %s plant %d got %s %.200s", a.kind, a.id, a.outcome, a.response)
	}
}

// acknowledgement is the response to an attempt that has happened.
func (a *attempt) acknowledgement() string {
	switch a.kind {
	case fresh, again:
		return strings.Replace(a.body, fmt.Sprintf(`"id":%d,`, a.id), "", 1)
	case edit:
		return a.body
	case drop, gone:
		return removed
	}
	return "nothing acknowledges it"
}

func (r *Report) violation(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}
