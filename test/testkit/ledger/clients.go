package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// Options describe clients.
type Options struct {
	Clients  int           // 32 if 0
	Rate     int           // requests a second, whether or not earlier ones have a response; 0: one after the other
	Pause    time.Duration // of each client before a request
	Edits    bool          // replace and remove plants too
	From     string        // the clients' loopback address, if not empty
	NewConns bool          // each request has a connection of its own
}

// Start starts clients, spread over targets that serve one store. A client whose target does not respond continues with
// the next one, and ends when nothing listens at any of them: another service may soon have the address. Clients also
// end when stop is called, which waits for their last responses, and at the end of the test.
func (l *Ledger) Start(t testing.TB, o Options, targets ...testkit.Target) (stop func()) {
	if o.Clients == 0 {
		o.Clients = 32
	}
	c := &clients{l, o, targets, make(chan struct{}), make(chan time.Time, 100*o.Rate)}
	var all sync.WaitGroup
	if o.Rate > 0 {
		all.Go(c.schedule)
	}
	for n := range o.Clients {
		all.Go(func() { c.work(n) })
	}
	stop = sync.OnceFunc(func() {
		close(c.end)
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}

type clients struct {
	*Ledger
	Options
	targets []testkit.Target
	end     chan struct{}
	due     chan time.Time
}

// single is the client of requests that a test sends itself.
var single = newHTTP(Options{}, func() {})

// newHTTP is a client that calls opened for each new connection.
func newHTTP(o Options, opened func()) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if o.From != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(o.From)}
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			opened()
		}
		return c, err
	}
	return &http.Client{
		Timeout: testkit.Deadline, // longer than a create can wait in the service
		Transport: &http.Transport{
			DialContext: dial, DisableKeepAlives: o.NewConns, DisableCompression: true, TLSClientConfig: testkit.ClientTLS(),
		},
	}
}

// schedule makes requests due at the rate.
func (c *clients) schedule() {
	defer close(c.due)
	for at := time.Now(); ; at = at.Add(time.Second / time.Duration(c.Rate)) {
		select {
		case <-c.end:
			return
		case <-time.After(time.Until(at)):
			c.due <- at
		}
	}
}

// next waits until a client may send, and returns since when the request is due.
func (c *clients) next() (due time.Time, more bool) {
	if c.Rate > 0 {
		due, more = <-c.due
		return due, more
	}
	select {
	case <-c.end:
		return due, false
	case <-time.After(c.Pause):
		return time.Now(), true
	}
}

// work is client n, which has a connection of its own.
func (c *clients) work(n int) {
	client := newHTTP(c.Options, func() { c.conns.Add(1) })
	defer client.CloseIdleConnections()
	var stored *attempt // the last acknowledged plant
	for closed := 0; closed < len(c.targets); {
		due, more := c.next()
		if !more {
			return
		}
		c.mu.Lock()
		c.sent++
		a := compose(c.sent, stored, c.Edits)
		c.mu.Unlock()
		switch c.send(client, c.targets[n%len(c.targets)], a, due) {
		case Unreachable:
			closed++
			n++
		case None:
			n++
		default:
			closed = 0
		}
		switch {
		case stored != nil && a.id == stored.id && a.outcome() == unknown && a.kind != read,
			a.outcome() == acked && a.kind == drop:
			stored = nil // Later attempts would make it impossible to tell what must be stored.
		case a.outcome() == acked && (a.kind == fresh || a.kind == edit):
			stored = a
		}
		if a.outcome() == unknown || a.number/100 == 503 || a.number/100 == 429 {
			time.Sleep(5 * time.Millisecond) // The service is overloaded or failing.
		}
	}
}

// send records an attempt, sends it and records the response, whose number it returns.
func (l *Ledger) send(client *http.Client, to testkit.Target, a *attempt, due time.Time) int {
	l.record(a)
	number, received, stale := exchange(client, to, a)
	if stale && a.kind != drop {
		number, received, _ = exchange(client, to, a)
	}
	if l.Balanced && a.kind == read && number == 50302 {
		number = None
	}
	l.complete(a, number, received, time.Since(due))
	return number
}

// exchange sends an attempt once: net/http repeats a write only if it wrote nothing. stale reports that there was no
// response because the server closed a connection that had been idle for long. Neither end can know that in time, so
// every connection pool repeats such a request.
func exchange(client *http.Client, to testkit.Target, a *attempt) (number int, received string, stale bool) {
	method, path, body := a.request()
	var idle time.Duration
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(g httptrace.GotConnInfo) { idle = g.IdleTime },
	})
	r, err := http.NewRequestWithContext(ctx, method, to.URL+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+to.Token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return Unreachable, "", false
	}
	if err != nil {
		return None, "", idle > testkit.LongIdle
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return None, "", false
	}
	number, received = classify(response, text)
	return number, received, false
}

// classify returns the number of a response, and the body of one with status 200. Of another, it returns what is wrong
// with the response.
func classify(response *http.Response, text []byte) (number int, received string) {
	switch response.StatusCode {
	case http.StatusOK:
		return http.StatusOK, strings.TrimSuffix(string(text), "\n")
	case http.StatusNoContent:
		return http.StatusNoContent, string(text)
	}
	var failure struct {
		Error   int
		Message string
	}
	err := json.Unmarshal(text, &failure)
	kind, retry := response.Header.Get("Content-Type"), response.Header.Get("Retry-After")
	switch {
	case err != nil || failure.Error/100 != response.StatusCode || failure.Message == "" || kind != "application/json":
		return response.StatusCode, fmt.Sprintf("%s %.200s, which is not an Error", kind, text)
	case response.StatusCode == http.StatusServiceUnavailable && retry == "":
		return failure.Error, "without Retry-After"
	}
	return failure.Error, ""
}
