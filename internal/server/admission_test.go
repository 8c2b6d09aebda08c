package server

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/machine"
	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/token"
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

// stuck is a database that does not answer before it is let go.
type stuck struct{ entered, release chan struct{} }

func (s stuck) Create(context.Context, plant.Record) (plant.Outcome, error) {
	s.entered <- struct{}{}
	<-s.release
	return plant.Created, nil
}

func (s stuck) Replace(context.Context, string, int64, plant.Plant, *plant.Plant) error {
	_, err := s.Create(nil, plant.Record{})
	return err
}

func (s stuck) Remove(context.Context, string, int64, *plant.Plant) error {
	return s.Replace(nil, "", 0, plant.Plant{}, nil)
}

// When the database hangs, one token can't fill the queue: there is room for another.
func TestQueueIsShared(t *testing.T) {
	for _, what := range []string{"create", "replace", "remove"} {
		t.Run(what, func(t *testing.T) { sharesQueue(t, what) })
	}
}

func sharesQueue(t *testing.T, what string) {
	c, _ := pair(t)
	l := c.from
	requests := func(name byte) context.Context {
		c := &conn{from: l}
		l.mu.Lock()
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		ctx := connContext(t.Context(), c)
		l.admit(ctx, token.Hash{name})
		return ctx
	}
	db := stuck{make(chan struct{}, 100), make(chan struct{})}
	creates := &fairCreator{db, line{tokens: &l.tokens, room: 40}}
	edits := &fairEditor{db, line{tokens: &l.tokens, room: 40}}
	do := map[string]func(context.Context) error{
		"create":  func(ctx context.Context) error { _, err := creates.Create(ctx, plant.Record{}); return err },
		"replace": func(ctx context.Context) error { return edits.Replace(ctx, "", 0, plant.Plant{}, nil) },
		"remove":  func(ctx context.Context) error { return edits.Remove(ctx, "", 0, nil) },
	}[what]
	var waiting sync.WaitGroup
	enter := func(ctx context.Context) bool {
		refused := make(chan error, 1)
		waiting.Go(func() {
			if err := do(ctx); err != nil {
				refused <- err
			}
		})
		select {
		case <-db.entered:
			return true
		case err := <-refused:
			if !errors.Is(err, store.ErrBusy) {
				t.Errorf("refused with %v", err)
			}
			return false
		}
	}
	greedy := requests('g')
	for range 30 { // alone, it may have more than half
		if !enter(greedy) {
			t.Fatal("refused although nobody else is there")
		}
	}
	modest := requests('m')
	if enter(greedy) {
		t.Error("the greedy token has 30 of 40 under way, and another was taken while somebody else is there")
	}
	for n := range 5 {
		if !enter(modest) {
			t.Errorf("the modest token was refused with %d under way", n)
		}
	}
	close(db.release)
	waiting.Wait()
	if n := creates.all.Load() + edits.all.Load(); n != 0 {
		t.Errorf("%d are under way after all", n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		l.unshare(c)
	}
	if len(l.shares) != 0 || l.tokens.Load() != 0 {
		t.Errorf("%d tokens still have a share", len(l.shares))
	}
}
