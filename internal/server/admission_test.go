package server

import (
	"context"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/internal/machine"
)

func TestMaxConns(t *testing.T) {
	for _, c := range []struct {
		processors int
		files      uint64
		memory     int64
		want       int
	}{
		{2, math.MaxUint64, math.MaxInt64, 1024},
		{64, 1 << 20, math.MaxInt64, 4096},
		{64, 1 << 20, 256 << 20, 2048},
		{2, 64, math.MaxInt64, 24},
		{2, 10, math.MaxInt64, 4},
		{2, 1 << 20, 1 << 20, 8},
	} {
		if got := maxConns(machine.Limits{Processors: c.processors, Files: c.files, Memory: c.memory}); got != c.want {
			t.Errorf("maxConns(%d, %d, %d) = %d, want %d", c.processors, c.files, c.memory, got, c.want)
		}
	}
}

// Who sends requests ahead and reads no answer gives way like others, and those who do not give way, because
// we are late to read what they ask, do not stand before the others.
func TestEvict(t *testing.T) {
	if !canRefuse {
		t.Skip("what is unread can't be seen here")
	}
	first, _ := pair(t)
	l, now := first.from, time.Now() // one gives way at a time
	conns := map[string]*conn{}
	for name, has := range map[string]struct {
		age    time.Duration
		unread bool
		set    func(c *conn)
	}{
		"late, oldest":          {readTimeout - time.Second, true, nil},
		"late":                  {readTimeout - 2*time.Second, true, nil},
		"late, the third":       {readTimeout - 3*time.Second, true, nil},
		"stuck and ahead":       {stuckFor + 2*time.Second, true, func(c *conn) { c.busy.Store(true) }},
		"stuck":                 {stuckFor + time.Second, false, func(c *conn) { c.busy.Store(true) }},
		"being answered, ahead": {stuckFor - time.Second, true, func(c *conn) { c.busy.Store(true) }},
		"sends its body":        {stuckFor + 3*time.Second, true, func(c *conn) { c.busy.Store(true); c.half.Store(true); c.reading.Store(true) }},
		"idle":                  {idleFor + time.Second, false, nil},
		"just answered":         {0, false, nil},
	} {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c := accepted.(*conn)
		defer c.Close()
		if has.unread {
			client.Write([]byte("GET / HTTP/1.1\r\n"))
			for silent(c.Conn) {
				time.Sleep(time.Millisecond)
			}
		}
		c.asked.Store(true)
		c.since.Store(now.Add(-has.age).UnixNano())
		if has.set != nil {
			has.set(c)
		}
		conns[name] = c
	}
	first.Close()
	l.door.mu.Lock()
	defer l.door.mu.Unlock()
	for _, want := range []string{"stuck and ahead", "stuck", "idle", ""} {
		before := l.open()
		ended := l.evict(now)
		after := l.open()
		got := ""
		for name, c := range conns {
			if slices.Contains(before, c) && !slices.Contains(after, c) {
				got += name
			}
		}
		if got != want || ended != len(before)-len(after) {
			t.Errorf("evict() = %d, and %q gave way, want %q", ended, got, want)
		}
	}
}

// A connection whose answer is not read gives way, whichever it is of several requests that came together, and
// whatever came after them.
func TestUnreadAnswerGivesWay(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(inner, 10, func(string, ...any) {})
	answering := make(chan context.Context, 10)
	service := &http.Server{ConnState: l.state, ConnContext: connContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answering <- r.Context()
		if r.URL.Path == "/long" {
			w.Write(make([]byte, 64<<20)) // more than any buffer takes
		}
	})}
	defer service.Close()
	go service.Serve(l)
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const short, long = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /long HTTP/1.1\r\nHost: x\r\n\r\n"
	client.Write([]byte(short + long + strings.Repeat(short, 1000)))
	<-answering
	c := connOf(<-answering)
	for canRefuse && silent(c.Conn) {
		time.Sleep(time.Millisecond)
	}
	now := time.Now()
	l.door.mu.Lock()
	defer l.door.mu.Unlock()
	if n := l.evict(now); n != 0 {
		t.Errorf("%d connections gave way that are being answered", n)
	}
	if n := l.evict(now.Add(stuckFor + time.Second)); n != 1 {
		t.Errorf("%d connections gave way, want the one whose answer is not read", n)
	}
}

// A token counts as an owner as long as one of its connections is open.
func TestOwners(t *testing.T) {
	c, _ := pair(t)
	l := c.from
	identify := func(owner byte) *conn {
		c := &conn{from: l}
		l.mu.Lock()
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		if l.Identify(connContext(t.Context(), c), [32]byte{owner}) {
			t.Errorf("Identify() of owner %d asks to close a connection that nobody waits for", owner)
		}
		return c
	}
	owners := func(want int) {
		t.Helper()
		if got := l.Owners(); got != want {
			t.Errorf("Owners() = %d, want %d", got, want)
		}
	}
	a1, a2, b := identify('a'), identify('a'), identify('b')
	owners(2)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unshare(a1)
	owners(2)
	l.unshare(a2)
	owners(1)
	l.unshare(b)
	owners(0)
}
