package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// service is the service under test.
type service struct {
	url, token string
	http       *http.Client
}

func newService(url, token string) *service {
	return &service{url, token, &http.Client{
		Timeout:   30 * time.Second, // longer than a create can wait in the service
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}}
}

func (s *service) do(method, path, body string) (*http.Response, []byte, error) {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := s.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, text, err
}

// drive creates plants with concurrent clients, and changes some of them with edits, until none gets a response
// or ctx ends. The clients are spread over the services, which share a database.
func drive(ctx context.Context, all []*service, l *ledger, clients int, edits bool) error {
	last := new(atomic.Int64)
	last.Store(l.last)
	failed := make(chan error, clients)
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			if err := create(ctx, all, n, l, last, edits); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed // an error of the ledger file; failures of the service are recorded in it
}

// create is client n. When a service does not respond, it uses the next one, and it ends when none responds.
func create(ctx context.Context, all []*service, n int, l *ledger, last *atomic.Int64, edits bool) error {
	var stored *attempt // the last acknowledged plant
	for silent := 0; silent < len(all) && ctx.Err() == nil; {
		a := compose(last.Add(1), stored, edits)
		lost, err := a.send(all[n%len(all)], l)
		if err != nil {
			return err
		}
		silent++
		if lost {
			n++
		} else {
			silent = 0
		}
		switch {
		case a.outcome == unknown && a.id == idOf(stored), a.outcome == acked && a.kind == drop:
			stored = nil // Later attempts would make it impossible to tell what must be stored.
		case a.outcome == acked && (a.kind == fresh || a.kind == edit):
			stored = a
		}
		if a.outcome == unknown || a.outcome == refused && a.kind == fresh {
			time.Sleep(5 * time.Millisecond) // The service is overloaded or failing.
		}
	}
	return nil
}

func idOf(a *attempt) int64 {
	if a == nil {
		return 0
	}
	return a.id
}

// compose is the attempt of a number: mostly a new plant, sometimes one that must be refused, or an acknowledged one
// that is repeated or, with edits, changed.
func compose(n int64, stored *attempt, edits bool) *attempt {
	// The ids are scattered, so that a batch touches pages all over the database file.
	a := &attempt{n: n, kind: fresh, id: int64(uint64(n) * 0x9E3779B97F4A7C15)}
	name := fmt.Sprintf("plant %d, \"grün\" 🌱", n)
	if n%40 == 0 {
		name += strings.Repeat(" and more", 1000) // more than a page of the database
	}
	var tag *string
	if n%3 > 0 {
		tag = new(strings.Repeat(fmt.Sprintf("tag\n%d", n), int(n%3)-1)) // It is empty for every third plant.
	}
	a.body = encode(a.id, name, tag)
	switch {
	case n%10 == 3:
		a.kind = wrong
		a.body = []string{
			fmt.Sprintf(`{"id":%d,"name":"x","tag":null}`, a.id),
			fmt.Sprintf(`{"id":%d}`, a.id),
			fmt.Sprintf(`{"id":%d,"name":"x","name":"x"}`, a.id),
			fmt.Sprintf(`{"id":%d,"name":"x"`, a.id),
		}[n/10%4]
	case n%10 == 6 && stored != nil:
		a.kind, a.id, a.body = again, stored.id, stored.body
	case n%20 == 19 && stored != nil:
		a.kind, a.id = taken, stored.id
		a.body = encode(a.id, name, tag)
	case n%10 == 5 && stored != nil && edits:
		a.kind, a.id = edit, stored.id
		a.body = encode(a.id, name, tag)
	case n%20 == 9 && stored != nil && edits:
		a.kind, a.id, a.body = drop, stored.id, stored.body
	}
	return a
}

// encode writes a plant as the service does, so that they can be compared byte by byte.
func encode(id int64, name string, tag *string) string {
	text := fmt.Sprintf(`{"id":%d,"name":%s`, id, quote(name))
	if tag != nil {
		text += `,"tag":` + quote(*tag)
	}
	return text + "}"
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// send writes the intent, sends the request and writes the outcome. lost reports that there was no response.
func (a *attempt) send(s *service, l *ledger) (lost bool, err error) {
	if err := l.writeIntent(a); err != nil {
		return false, err
	}
	method, path, body := a.request()
	response, text, err := s.do(method, path, body)
	a.outcome, a.response = unknown, none
	if lost = err != nil; !lost {
		a.outcome, a.response = classify(response.StatusCode, text)
	}
	return lost, l.writeOutcome(a)
}

func (a *attempt) request() (method, path, body string) {
	switch a.kind {
	case edit:
		return "PUT", fmt.Sprintf("/plants/%d", a.id), a.body
	case drop, gone:
		return "DELETE", fmt.Sprintf("/plants/%d", a.id), ""
	}
	return "POST", "/plants", a.body
}

const (
	removed  = "204"
	notFound = 40401
)

// classify returns what a response promises. The numbers are those of docs/errors.md.
func classify(status int, body []byte) (outcome, string) {
	switch status {
	case http.StatusOK:
		return acked, string(bytes.TrimSuffix(body, []byte("\n")))
	case http.StatusNoContent:
		return acked, removed
	}
	var failure struct{ Error int }
	if json.Unmarshal(body, &failure) != nil || failure.Error/100 != status {
		return unknown, strconv.Itoa(status)
	}
	switch n := failure.Error; {
	case n/100 == 400, n == notFound, n == 50301, n == 50303, n == 50304, n == 50305:
		return refused, strconv.Itoa(n)
	default:
		return unknown, strconv.Itoa(n)
	}
}
