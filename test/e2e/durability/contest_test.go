//go:build linux

package durability

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"plantstore/test/testkit"
)

// instance is one run of a server.
type instance struct {
	testkit.Target
	died atomic.Int64 // a time after its end, or 0 while it runs
}

// contest is clients that send requests about the same few ids until they are stopped.
type contest struct {
	t         *testing.T
	first     int                         // the lowest id
	servers   []*atomic.Pointer[instance] // the instance that runs for each server
	started   time.Time
	clients   []*worker
	end       chan struct{}
	stop      func() // ends the clients and waits for them
	responses atomic.Int64
}

// contend starts the clients, on ids that do not exist.
func contend(t *testing.T, first int, targets ...testkit.Target) *contest {
	t.Helper()
	c := &contest{t: t, first: first, started: time.Now(), end: make(chan struct{})}
	for _, to := range targets {
		place := new(atomic.Pointer[instance])
		place.Store(&instance{Target: to})
		c.servers = append(c.servers, place)
	}
	var wg sync.WaitGroup
	c.stop = sync.OnceFunc(func() {
		close(c.end)
		wg.Wait()
	})
	t.Cleanup(c.stop)
	for range contenders {
		one := c.client()
		wg.Go(one.work)
	}
	return c
}

func (c *contest) client() *worker {
	one := &worker{contest: c, n: len(c.clients)}
	c.clients = append(c.clients, one)
	return one
}

func (c *contest) now() int64 { return int64(time.Since(c.started)) }

// history is the operations of all clients. A write without a response may take effect at any time after it was sent,
// or never; with an embedded database, not after the end of the server.
func (c *contest) history(embedded bool) (all []porcupine.Operation) {
	end := c.now() + 1
	for _, one := range c.clients {
		for _, e := range one.done {
			died := e.on.died.Load()
			switch {
			case e.Output != unknown:
			case died > 0 && e.Call >= died: // no server received it
				continue
			case died > 0 && embedded:
				e.Return = died
			default:
				e.Return = end
			}
			all = append(all, e.Operation)
		}
	}
	return all
}

// entry is an operation and the server that it was sent to.
type entry struct {
	on *instance
	porcupine.Operation
}

// worker is one client.
type worker struct {
	*contest
	n    int
	sent int
	done []entry
}

func (c *worker) work() {
	for {
		select {
		case <-c.end:
			return
		case <-time.After(rand.N(maxPause)):
		}
		on := c.servers[rand.IntN(len(c.servers))].Load()
		id := c.first + rand.IntN(contendedIDs)
		c.sent++
		mine := fmt.Sprintf(`"name":"%d of client %d"}`, c.sent, c.n)
		if c.sent%2 == 0 {
			mine = fmt.Sprintf(`"name":"%d of client %d","tag":"even"}`, c.sent, c.n)
		}
		switch rand.IntN(16) {
		case 0, 1, 2, 3:
			c.read(on, id)
		case 4:
			c.list(on)
		case 5, 6, 7:
			c.write(on, operation{id: id, kind: "POST", plant: mine}, "")
		case 8: // the plant that is already stored
			if seen, _ := c.read(on, id); seen != "" {
				c.write(on, operation{id: id, kind: "POST", plant: seen}, "")
			}
		case 9, 10:
			c.write(on, operation{id: id, kind: "PUT", plant: mine}, "")
		case 11, 12:
			if seen, tag := c.read(on, id); seen != "" {
				c.write(on, operation{id: id, kind: "PUT", plant: mine, match: seen}, tag)
			}
		case 13, 14:
			if seen, tag := c.read(on, id); seen != "" {
				c.write(on, operation{id: id, kind: "DELETE", match: seen}, tag)
			}
		case 15:
			c.write(on, operation{id: id, kind: "DELETE"}, "")
		}
	}
}

// read returns the plant that was read and its ETag, or "" if there is no plant or no response.
func (c *worker) read(on *instance, id int) (plant, tag string) {
	called := c.now()
	a, _ := c.send(on, "GET", fmt.Sprint("/plants/", id), "", "")
	number := c.number(a)
	switch number {
	case 200:
		plant = strings.TrimPrefix(a.Body, fmt.Sprintf(`{"id":%d,`, id))
	case 40401:
	default:
		return "", ""
	}
	c.record(on, called, operation{id: id, kind: "GET"}, outcome{number, plant})
	return plant, a.Header.Get("ETag")
}

// list reads all ids with one request, which counts as a read of each.
func (c *worker) list(on *instance) {
	called := c.now()
	a, _ := c.send(on, "GET", fmt.Sprintf("/plants?limit=%d&after=%d", contendedIDs, c.first-1), "", "")
	if c.number(a) != 200 {
		return
	}
	var page []json.RawMessage
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil {
		c.t.Errorf("list: %s: %v", a.Body, err)
	}
	for id := c.first; id < c.first+contendedIDs; id++ {
		out := outcome{number: 40401}
		for _, text := range page {
			if plant, ok := strings.CutPrefix(string(text), fmt.Sprintf(`{"id":%d,`, id)); ok {
				out = outcome{200, plant}
			}
		}
		c.record(on, called, operation{id: id, kind: "GET"}, out)
	}
}

func (c *worker) write(on *instance, op operation, tag string) {
	path, body := fmt.Sprint("/plants/", op.id), ""
	switch op.kind {
	case "POST":
		path, body = "/plants", fmt.Sprintf(`{"id":%d,%s`, op.id, op.plant)
	case "PUT":
		body = "{" + op.plant
	}
	called := c.now()
	a, sent := c.send(on, op.kind, path, body, tag)
	switch number := c.number(a); {
	case !sent, number == 429, number == 50301, number == 50303, number == 50305: // it had no effect
	case number == 0, number == 50302:
		c.record(on, called, op, unknown)
	case number == 200 && !strings.HasSuffix(a.Body, op.plant):
		c.t.Errorf("%s of plant %d with %s returned %s", op.kind, op.id, op.plant, a.Body)
	default:
		c.record(on, called, op, outcome{number: number})
	}
}

// number is the status of a response or its error number, or 0 without a response.
func (c *worker) number(a testkit.Response) int {
	if a.Status == 401 || a.Status >= 500 && a.Status != 503 {
		c.t.Errorf("unexpected response %d %s", a.Status, a.Body)
	}
	if a.Status == 429 || a.Number() == 0 {
		return a.Status
	}
	return a.Number()
}

func (c *worker) record(on *instance, called int64, op operation, out outcome) {
	c.done = append(c.done, entry{on, porcupine.Operation{
		ClientId: c.n, Input: op, Call: called, Output: out, Return: c.now(),
	}})
	c.responses.Add(1)
}

// send sends a request once. sent reports whether the server can have received it.
func (c *worker) send(on *instance, method, path, body, match string) (a testkit.Response, sent bool) {
	if on.died.Load() > 0 {
		return a, false // Another process may have its port.
	}
	var headers []string
	if match != "" {
		headers = []string{"If-Match: " + match}
	}
	a, err := on.Send(method, path, body, headers...)
	if err != nil {
		return testkit.Response{}, !errors.Is(err, syscall.ECONNREFUSED)
	}
	return a, true
}

// shouldContinue reports whether the round has not seen enough responses. A slow machine takes longer for them.
func (c *contest) shouldContinue() bool {
	passed := time.Since(c.started)
	return passed < roundTime || c.responses.Load() < minResponses && passed < 10*roundTime
}

// kill ends a server and records when.
func (c *contest) kill(i int, s *testkit.Server) {
	s.Kill()
	c.servers[i].Load().died.Store(c.now())
}
