package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// Report is the result of Verify. The counts are of attempts since the last one.
type Report struct {
	Sent, Acked, Refused, Unknown int

	Stored, Absent int // how many unknown attempts were found to have happened, and how many not
	Lost           int // acknowledged plants, of any time, that are missing or changed
	Violations     []string
}

// Add adds the counts and violations of another report.
func (r *Report) Add(o Report) {
	r.Sent += o.Sent
	r.Acked += o.Acked
	r.Refused += o.Refused
	r.Unknown += o.Unknown
	r.Stored += o.Stored
	r.Absent += o.Absent
	r.Lost += o.Lost
	r.Violations = append(r.Violations, o.Violations...)
}

func (r Report) String() string {
	return fmt.Sprintf("%d sent, %d acknowledged, %d refused, %d unknown (%d stored, %d absent), %d lost, %d violations",
		r.Sent, r.Acked, r.Refused, r.Unknown, r.Stored, r.Absent, r.Lost, len(r.Violations))
}

// Check is Verify for a service that must have kept its promises.
func (l *Ledger) Check(t testing.TB, to testkit.Target) Report {
	t.Helper()
	r, err := l.Verify(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v; responses: %v, the slowest after %v", r, l.Responses(), l.Times().Quantile(1).Round(time.Millisecond))
	for _, violation := range r.Violations[:min(10, len(r.Violations))] {
		t.Error(violation)
	}
	return r
}

// CheckMany is Check for a ledger of clients, which must have sent enough to detect a violation.
func (l *Ledger) CheckMany(t testing.TB, to testkit.Target) Report {
	t.Helper()
	r := l.Check(t, to)
	if r.Acked < 100 || r.Refused < 10 {
		t.Errorf("%d acknowledged and %d refused are too few to detect anything", r.Acked, r.Refused)
	}
	return r
}

// retryTime is how long Verify repeats an attempt whose outcome stays unknown, and List a request that returns 503.
const retryTime = 30 * time.Second

// Verify compares what is stored with the ledger. Then it repeats each unknown attempt until its outcome is known, and
// compares again. No client may be sending.
func (l *Ledger) Verify(to testkit.Target) (Report, error) { return l.verify(to, retryTime) }

func (l *Ledger) verify(to testkit.Target, limit time.Duration) (r Report, err error) {
	stored, err := List(to)
	if err != nil {
		return r, err
	}
	r.compare(l.attempts, stored)
	var retries []*attempt
	for _, a := range l.attempts[l.checked:] {
		r.Sent++
		switch a.outcome() {
		case acked:
			r.Acked++
		case refused:
			r.Refused++
		case unknown:
			if a.kind == read { // Its plant may have changed since then.
				continue
			}
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
		l.retry(&r, to, a, limit)
	}
	l.checked = len(l.attempts)
	if len(retries) == 0 || len(r.Violations) > 0 { // Otherwise each would be reported twice.
		return r, nil
	}
	if stored, err = List(to); err == nil {
		r.compare(l.attempts, stored)
	}
	return r, err
}

// Mark returns a check of a copy of the store that is made after this call: the copy has everything that was
// acknowledged before, and of what was sent later anything or nothing. The clients may go on.
func (l *Ledger) Mark() (verify func(copied testkit.Target) (Report, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := map[*attempt]bool{}
	for _, a := range l.attempts {
		before[a] = a.outcome() == acked
	}
	return func(copied testkit.Target) (r Report, err error) {
		stored, err := List(copied)
		if err != nil {
			return r, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		var all []*attempt
		for _, a := range l.attempts {
			if !before[a] {
				a = &attempt{kind: a.kind, id: a.id, body: a.body} // its outcome is unknown
			}
			all = append(all, a)
		}
		r.compare(all, stored)
		return r, nil
	}
}

// retry repeats an attempt until a response has a definite outcome.
func (l *Ledger) retry(r *Report, to testkit.Target, before *attempt, limit time.Duration) {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		a := &attempt{kind: before.kind, id: before.id, body: before.body}
		if a.kind == drop {
			a.kind = gone
		}
		l.send(single, to, a, time.Now())
		if a.outcome() == acked || a.number/10000 == 4 && a.number/100 != 429 {
			return // compare checks that it is the right one.
		}
		if time.Now().After(deadline) {
			r.violation("plant %d was sent again for %v and the response is still %d", a.id, limit, a.number)
			return
		}
	}
}

// List reads every plant of the store, as the service encodes it.
func List(to testkit.Target) (map[int64]string, error) {
	stored := map[int64]string{}
	for path, began := "/plants?limit=1000", time.Now(); ; {
		response, err := to.Send("GET", path, "")
		if err == nil && response.Status == 503 && time.Since(began) < retryTime {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if err != nil {
			return nil, err
		}
		var page []json.RawMessage
		if err := json.Unmarshal([]byte(response.Body), &page); err != nil || response.Status != 200 {
			return nil, fmt.Errorf("GET %s: %d %.200q", path, response.Status, response.Body)
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
		path, began = fmt.Sprintf("/plants?limit=1000&after=%d", p.ID), time.Now()
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
	case a.kind == wrong || a.kind == taken || a.kind == read: // nothing may happen
	case a.outcome() == acked, a.kind == gone && a.number == notFound:
		e.may, e.acked = []string{a.result()}, a
	case a.outcome() == unknown:
		e.may = append(e.may, a.result())
	}
}

// compare reports every difference between the ledger and what is stored.
func (r *Report) compare(attempts []*attempt, stored map[int64]string) {
	expected := map[int64]*expectation{}
	for _, a := range attempts {
		if problem := a.problem(); problem != "" {
			r.violation("%s", problem)
		}
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

func (r *Report) violation(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}
