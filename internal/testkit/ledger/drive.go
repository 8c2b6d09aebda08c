package main

import (
	"bytes"
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

// service is the one under test.
type service struct {
	url, token string
	http       *http.Client
}

func newService(url, token string) *service {
	return &service{url, token, &http.Client{
		Timeout:   30 * time.Second, // longer than the service lets a create wait
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

// drive lets clients create plants until each has lost the service.
func drive(s *service, b *book, clients int) error {
	last := new(atomic.Int64)
	last.Store(b.last)
	failed := make(chan error, clients)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			if err := create(s, b, last); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed // of the ledger itself; the service's belong into it
}

func create(s *service, b *book, last *atomic.Int64) error {
	var stored *attempt // the last that was answered 200
	for {
		a := compose(last.Add(1), stored)
		lost, err := a.send(s, b)
		if err != nil || lost {
			return err
		}
		if a.outcome == acked && a.kind == fresh {
			stored = a
		}
		if a.outcome == unknown || a.outcome == refused && a.kind == fresh {
			time.Sleep(5 * time.Millisecond) // a service in trouble
		}
	}
}

// compose makes the attempt of a number: mostly a new plant, sometimes one that must be refused, or
// one that was answered before.
func compose(n int64, stored *attempt) *attempt {
	// Scattered over all ids, so that a batch touches pages all over the file.
	a := &attempt{n: n, kind: fresh, id: int64(uint64(n) * 0x9E3779B97F4A7C15)}
	name := fmt.Sprintf("plant %d, \"grün\" 🌱", n)
	if n%40 == 0 {
		name += strings.Repeat(" and more", 1000) // several pages of its own
	}
	var tag *string
	if n%3 > 0 {
		tag = new(strings.Repeat(fmt.Sprintf("tag\n%d", n), int(n%3)-1)) // for one in three it is empty
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
	}
	return a
}

// encode writes a plant as the service shows it, so that they can be compared byte for byte.
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

// send writes the intent, sends, and writes what was told. lost says that there was no answer.
func (a *attempt) send(s *service, b *book) (lost bool, err error) {
	if err := b.intend(a); err != nil {
		return false, err
	}
	response, text, err := s.do("POST", "/plants", a.body)
	a.outcome, a.told = unknown, none
	if lost = err != nil; !lost {
		a.outcome, a.told = judge(response.StatusCode, text)
	}
	return lost, b.conclude(a)
}

// judge says what an answer promises. Numbers are those of the catalogue.
func judge(status int, body []byte) (outcome, string) {
	if status == http.StatusOK {
		return acked, string(bytes.TrimSuffix(body, []byte("\n")))
	}
	var failure struct{ Error int }
	if json.Unmarshal(body, &failure) != nil || failure.Error/100 != status {
		return unknown, strconv.Itoa(status)
	}
	switch n := failure.Error; {
	case n/100 == 400, n == 50301, n == 50303, n == 50304, n == 50305:
		return refused, strconv.Itoa(n)
	default:
		return unknown, strconv.Itoa(n)
	}
}
