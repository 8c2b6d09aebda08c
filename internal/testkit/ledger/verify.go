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

// Report is what verify found. The counts are of attempts since the last time.
type Report struct {
	Intents, Acks, Refused, Unknown int

	Whole, Absent int // of those that are not known: found stored, or not
	Lost          int // plants that were answered 200, of all times, and are not there as they were sent
	Lies          []string
}

const patience = 30 * time.Second // for a service that has just started to take a retry

// verify compares what is stored with the ledger. Then it sends again whatever is not known, which
// must end in one plant that is told to be there, and compares once more.
func verify(s *service, b *book) (*Report, error) {
	stored, err := list(s)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	r.compare(b.attempts, stored)
	var retries []*attempt
	for _, n := range slices.Sorted(maps.Keys(b.attempts)) {
		if b.verified[n] {
			continue
		}
		a := b.attempts[n]
		r.Intents++
		switch a.outcome {
		case acked:
			r.Acks++
		case refused:
			r.Refused++
		case unknown:
			r.Unknown++
			if stored[a.id] == a.body {
				r.Whole++
			} else {
				r.Absent++
			}
			retries = append(retries, a)
		}
	}
	for _, a := range retries {
		if err := r.retry(s, b, a); err != nil {
			return nil, err
		}
	}
	if stored, err = list(s); err != nil {
		return nil, err
	}
	if len(r.Lies) == 0 { // or each would be told twice
		r.compare(b.attempts, stored)
	}
	return r, b.write("VERIFIED\n")
}

// retry repeats an attempt until there is an answer that says what became of it.
func (r *Report) retry(s *service, b *book, before *attempt) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		b.last++
		a := &attempt{n: b.last, kind: before.kind, id: before.id, body: before.body}
		b.attempts[a.n] = a
		if _, err := a.send(s, b); err != nil {
			return err
		}
		if a.outcome == acked || a.outcome == refused && strings.HasPrefix(a.told, "400") {
			return nil // whether it is the right one, compare says
		}
		if time.Now().After(deadline) {
			r.lie("plant %d was sent again for %v, and still %s %s", a.id, patience, a.outcome, a.told)
			return nil
		}
	}
}

// list reads every plant of the store as the service shows it.
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
			return nil, errors.New("an empty page says that more follow")
		}
		path = fmt.Sprintf("/plants?limit=1000&after=%d", p.ID)
	}
}

// account is what the ledger knows of one id.
type account struct {
	body      string // the plant that was sent, as it must be stored; "" where only wrong ones were
	must, may bool   // be there
}

// compare tells every difference between the ledger and what is stored.
func (r *Report) compare(attempts map[int64]*attempt, stored map[int64]string) {
	accounts := map[int64]*account{}
	for _, n := range slices.Sorted(maps.Keys(attempts)) {
		a := attempts[n]
		r.judge(a)
		c := accounts[a.id]
		if c == nil {
			c = new(account)
			accounts[a.id] = c
		}
		if a.kind == fresh || a.kind == again {
			c.body = a.body
			c.must = c.must || a.outcome == acked
			c.may = c.may || a.outcome == unknown
		}
	}
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		switch c, found := accounts[id], stored[id]; {
		case found == "" && c.must:
			r.Lost++
			r.lie("plant %d was answered 200 and is lost", id)
		case found == "": // refused, wrong, or not known
		case !c.must && !c.may:
			r.lie("plant %d was refused and is stored", id)
		case found != c.body && c.must:
			r.Lost++
			r.lie("plant %d was answered 200 and is not as it was sent: %.200s, want %.200s", id, found, c.body)
		case found != c.body:
			r.lie("plant %d is there in part: %.200s, want %.200s", id, found, c.body)
		}
	}
	for id := range stored {
		if accounts[id] == nil {
			r.lie("plant %d was never sent and is stored", id)
		}
	}
}

// judge tells of an answer that its request can't have.
func (r *Report) judge(a *attempt) {
	is400 := strings.HasPrefix(a.told, "400")
	ok := true
	switch a.outcome {
	case acked:
		id := fmt.Sprintf(`"id":%d,`, a.id)
		ok = (a.kind == fresh || a.kind == again) && a.told == strings.Replace(a.body, id, "", 1)
	case refused:
		ok = !is400 || a.kind == taken && a.told == "40009" || a.kind == wrong && a.told != "40009"
	case unknown:
		ok = a.told == none || a.told == "50302"
	}
	if !ok {
		r.lie("a %s plant %d was told %s %.200s", a.kind, a.id, a.outcome, a.told)
	}
}

func (r *Report) lie(format string, args ...any) {
	r.Lies = append(r.Lies, fmt.Sprintf(format, args...))
}
