package listen

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Who makes way for whom, in a listener with 160 connections: an address has its share with 10, a token more than half
// with 81.
func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	small := arrival{total: 3, share: 10, most: 80, spare: true}
	large := arrival{total: 20, share: 10, most: 80, spare: true}
	crowd := small
	crowd.spare = false
	v := func(k kind, wait time.Duration, peers, total int) candidate {
		return candidate{kind: k, wait: wait, anonymous: true, counted: true, peers: peers, total: total}
	}
	token := func(k kind, wait time.Duration, peers int) candidate {
		return candidate{kind: k, wait: wait, counted: true, peers: peers, total: peers}
	}
	exempt := v(idle, 50*ms, 100, 0)
	exempt.counted = false
	longExempt := exempt
	longExempt.wait = 100 * ms
	for name, c := range map[string]struct {
		arrival
		candidate
		want   rank
		closes bool
	}{
		"over its share":                           {small, v(idle, 0, 11, 11), overShare, true},
		"over its share, half a request":           {small, v(receiving, 0, 11, 11), overShare, true},
		"over its share, a response just begun":    {small, v(writing, 99*ms, 11, 11), withoutToken, true},
		"over its share, a response":               {small, v(writing, 100*ms, 11, 11), overShare, true},
		"over its share, at work":                  {small, v(working, 0, 11, 11), busy, false},
		"within its share":                         {small, v(idle, 19*ms, 10, 10), never, true},
		"within its share, after 20 ms":            {small, v(idle, 20*ms, 10, 10), withoutToken, true},
		"two more than the arriving one":           {large, v(idle, 0, 22, 22), overShare, true},
		"one more than the arriving one":           {large, v(idle, 19*ms, 21, 21), never, true},
		"an address with one more":                 {small, v(idle, 19*ms, 4, 4), never, true},
		"an address with one more, after 20 ms":    {small, v(idle, 20*ms, 4, 4), withoutToken, true},
		"an address with one more, at work":        {small, v(working, time.Hour, 4, 4), never, false},
		"an address with fewer":                    {small, v(idle, 99*ms, 1, 1), never, true},
		"an address with fewer, after 100 ms":      {small, v(idle, 100*ms, 1, 1), withoutToken, true},
		"fewer, for an address with its share":     {large, v(idle, time.Hour, 19, 19), never, true},
		"as many, for an address with its share":   {large, v(idle, 20*ms, 1, 20), withoutToken, true},
		"a proxy is never the larger address":      {small, exempt, never, true},
		"a proxy after 100 ms":                     {small, longExempt, withoutToken, true},
		"a proxy, for an address with its share":   {large, longExempt, never, true},
		"half of all":                              {small, token(idle, 999*ms, 80), never, true},
		"more than half":                           {small, token(idle, 100*ms, 81), dominant, true},
		"more than half, just active":              {small, token(idle, 99*ms, 81), dominant, false},
		"more than half, a request in transit":     {small, token(receiving, 1999*ms, 81), dominant, false},
		"more than half, half a request":           {small, token(receiving, 2*time.Second, 81), dominant, true},
		"more than half, a response":               {small, token(writing, 100*ms, 81), dominant, true},
		"more than half, at work":                  {small, token(working, time.Hour, 81), dominant, false},
		"another token, idle":                      {small, token(idle, time.Second, 1), withToken, true},
		"another token, just active":               {small, token(idle, 999*ms, 1), never, true},
		"another token, half a request":            {small, token(receiving, 2*time.Second, 1), withToken, true},
		"another token, a response":                {small, token(writing, 24*time.Second, 1), never, true},
		"another token, a response that is unread": {small, token(writing, 25*time.Second, 1), withToken, true},
		"another token, at work":                   {small, token(working, time.Hour, 1), never, false},
		"another token, many without one":          {crowd, token(idle, time.Hour, 1), never, true},
		"another token, an address with its share": {large, token(idle, time.Hour, 1), never, true},
		"gone": {small, v(gone, time.Hour, 5, 5), never, false},
	} {
		got := c.candidate
		c.judge(&got)
		if got.rank != c.want || got.closes != c.closes {
			t.Errorf("%s: rank %d, closes %v, want %d, %v", name, got.rank, got.closes, c.want, c.closes)
		}
	}
}

func TestBefore(t *testing.T) {
	order := []candidate{
		{rank: overShare, peers: 2, closes: true},
		{rank: overShare, peers: 1, closes: true, wait: 1},
		{rank: withoutToken, peers: 2, closes: true, wait: 2},
		{rank: withoutToken, peers: 3, closes: true, wait: 1},
		{rank: busy, peers: 3},
		{rank: busy, peers: 2},
		{rank: dominant, peers: 90, closes: true},
		{rank: dominant, peers: 90, wait: 1},
		{rank: dominant, peers: 90, wait: 2},
		{rank: never},
	}
	for i := range order {
		for j := range order {
			if got := order[i].before(&order[j]); i != j && got != (i < j) {
				t.Errorf("%d before %d: %v", i, j, got)
			}
		}
	}
}

// byToken is a handler of requests with the token X-Token, of which /wait waits for proceed.
func byToken(l **Listener, proceed chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if token := r.Header.Get("X-Token"); token != "" {
			(*l).SetToken(r.Context(), [32]byte([]byte(token+strings.Repeat(" ", 32-len(token)))))
		}
		if r.URL.Path == "/wait" {
			<-proceed
		}
		if (*l).Last(r.Context()) {
			w.Header().Set("Connection", "close")
		}
	}
}

func serveTokens(t *testing.T, most int, change func(*Config)) (c client, proceed chan struct{}) {
	proceed = make(chan struct{})
	var l *Listener
	c = serve(t, most, change, byToken(&l, proceed))
	l = c.Listener
	return c, proceed
}

const withA = "GET / HTTP/1.1\r\nHost: x\r\nX-Token: a\r\n\r\n"

// A connection that can't be admitted gets the prepared response, also if it sends its request later. The log has the
// address with the most connections.
func TestRefusal(t *testing.T) {
	c, proceed := serveTokens(t, 3, nil)
	busy := c.dialMany(3, "127.0.0.1", strings.Replace(get, "/", "/wait", 1))
	c.waitState("handling", 3)
	for range 20 {
		conn := c.dial("127.0.0.1")
		if status := send(conn, get); status != 503 {
			t.Fatalf("a connection over the limit got %d", status)
		}
	}
	late := c.dial("127.0.0.1")
	time.Sleep(2 * requestWait)
	if status := send(late, get); status != 503 {
		t.Errorf("a late request got %d", status)
	}
	close(proceed)
	for _, conn := range busy {
		if status := receive(conn); status != 200 {
			t.Errorf("a request in flight got %d", status)
		}
	}
	want := "all connections are in use reason all that --most allows are open limit 3 from 127.0.0.1 connections 3\n"
	if got := c.log.String(); !strings.HasPrefix(got, want) {
		t.Errorf("log: %s, want %s", got, want)
	}
	if got := c.Stats(); got.Refused["address_share"] != 21 || got.Refused["limit"] != 0 {
		t.Errorf("stats: %+v", got)
	}
}

// However many connections are refused at a time, further ones are closed without a response.
func TestRefusalsAreBounded(t *testing.T) {
	c, proceed := serveTokens(t, 1, nil)
	defer close(proceed)
	c.dialMany(1, "127.0.0.1", strings.Replace(get, "/", "/wait", 1))
	c.waitState("handling", 1)
	for range cap(c.refusing) {
		c.refusing <- struct{}{}
	}
	if status := receive(c.dial("127.0.0.1")); status != 0 {
		t.Errorf("got %d", status)
	}
}

// The first connection that waits makes way for another address, whatever it waits for, and its slot is free at once.
func TestConnectionsMakeWay(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing": "", "half a head": "GET", "half a body": halfBody, "a response": get,
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serveTokens(t, 40, nil)
			c.dialMany(40, "127.0.0.1", sent)
			if sent == get {
				c.waitState("idle", 40)
			}
			for range 20 {
				other := c.dial("127.0.0.2")
				if status := send(other, withA); status != 200 {
					t.Fatalf("another address got %d: %v", status, c.Stats())
				}
				other.Close()
			}
			if evicted := c.Stats().Evicted["address_share"]; evicted == 0 {
				t.Error("no connection was evicted")
			}
		})
	}
}

// A client that has sent nothing learns why its connection is closed; one that has sent a part of a request gets
// nothing that it could take for the response.
func TestWhatEvictedClientsGet(t *testing.T) {
	for sent, want := range map[string]int{"": 503, "GET": 0, halfBody: 0} {
		c, _ := serveTokens(t, 2, nil)
		evicted := c.dialMany(2, "127.0.0.1", sent)
		statuses := make(chan int, 2)
		for _, conn := range evicted {
			go func() { statuses <- receive(conn) }()
		}
		c.wait("an eviction", func() bool {
			c.dial("127.0.0.2").Close()
			return c.Stats().Evicted["address_share"]+c.Stats().Evicted["no_token"] > 0
		})
		if got := <-statuses; got != want {
			t.Errorf("after %q: status %d, want %d", sent, got, want)
		}
	}
}

// A request that has arrived when its connection makes way still gets a response.
func TestArrivedRequestIsServed(t *testing.T) {
	c, _ := serveTokens(t, 1, nil)
	for range 50 {
		conn := c.dialMany(1, "127.0.0.1", "")[0]
		c.waitState("idle", 1)
		io.WriteString(conn, get)
		c.mu.Lock()
		if s := c.conns[0].state.Load(); s.kind() == idle {
			c.closeIdle(c.conns[0])
		}
		c.mu.Unlock()
		if status := receive(conn); status != 200 {
			t.Fatalf("status %d", status)
		}
		conn.Close()
		c.wait("the end", func() bool { return c.open() == 0 })
	}
}

// What has changed since it was judged is not closed: a response that has just begun, for example.
func TestChangedStateIsNotClosed(t *testing.T) {
	c, _ := serveTokens(t, 1, nil)
	conn := c.dialMany(1, "127.0.0.1", "GET")[0]
	c.waitState("receiving", 1)
	c.mu.Lock()
	tracked := c.conns[0]
	before := tracked.state.Load()
	tracked.enter(working, 0)
	if c.closeNow(tracked, before) {
		t.Error("closed")
	}
	c.mu.Unlock()
	if status := send(conn, get[3:]); status != 200 {
		t.Errorf("status %d", status)
	}
}

// Busy clients of a token with all connections lose no request while others get theirs.
func TestDominantTokenLosesNoRequest(t *testing.T) {
	c, _ := serveTokens(t, 8, nil)
	var clients sync.WaitGroup
	var stopped atomic.Bool
	var served, lost atomic.Int64
	for range 8 {
		clients.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			var last time.Time
			for !stopped.Load() {
				r, _ := http.NewRequest("POST", "http://"+c.Addr().String(), strings.NewReader("x"))
				r.Header.Set("X-Token", "a")
				switch response, err := transport.RoundTrip(r); {
				case err != nil && time.Since(last) > 50*time.Millisecond: // On a slow machine it was not busy.
				case err != nil:
					lost.Add(1)
				default:
					io.Copy(io.Discard, response.Body)
					response.Body.Close()
					served.Add(1)
					last = time.Now()
				}
			}
		})
	}
	c.wait("a token with all connections", func() bool { return served.Load() > 100 && c.open() == 8 })
	defer clients.Wait()
	defer stopped.Store(true)
	for range 30 {
		c.wait("another client", func() bool {
			other := c.dial("127.0.0.2")
			defer other.Close()
			return send(other, "GET / HTTP/1.1\r\nHost: x\r\nX-Token: b\r\n\r\n") == 200
		})
	}
	stopped.Store(true)
	clients.Wait()
	// A connection without a request so far has no token, and may be closed under its client.
	stats := c.Stats()
	if withoutToken := stats.Evicted["no_token"] + stats.Evicted["address_share"]; lost.Load() > withoutToken ||
		stats.Evicted["token_share"] == 0 {
		t.Errorf("%d of %d requests were lost; %v", lost.Load(), served.Load(), stats)
	}
}

// While connections are scarce, a response to a client without a token is its last.
func TestLast(t *testing.T) {
	c, _ := serveTokens(t, 2, nil)
	with, without := c.dial("127.0.0.1"), c.dial("127.0.0.1")
	for _, conn := range []net.Conn{with, without} {
		if status := send(conn, get); status != 200 {
			t.Fatalf("status %d", status)
		}
	}
	send(with, withA)
	if n := c.Tokens(); n != 1 {
		t.Errorf("Tokens() = %d", n)
	}
	c.scarce.Store(int64(c.now() + time.Hour)) // for longer than the test
	if status := send(with, withA); status != 200 {
		t.Errorf("with a token: %d", status)
	}
	if status := send(without, get); status != 200 {
		t.Errorf("without a token: %d", status)
	}
	if n, err := without.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the last response: %d, %v", n, err)
	}
	if status := send(with, withA); status != 200 {
		t.Errorf("with a token, again: %d", status)
	}
}

// At most a quarter of the connections is marked, and each of them is closed after its response.
func TestMarked(t *testing.T) {
	c, proceed := serveTokens(t, 8, nil)
	waitA := strings.Replace(withA, "/", "/wait", 1)
	all := c.dialMany(8, "127.0.0.1", waitA)
	c.waitState("handling", 8)
	c.mu.Lock()
	for range 5 {
		c.evict(netip.MustParseAddr("127.0.0.2"), c.now())
	}
	if c.marked != 2 {
		t.Errorf("%d are marked, want 2", c.marked)
	}
	c.mu.Unlock()
	close(proceed)
	for _, conn := range all {
		if status := receive(conn); status != 200 {
			t.Errorf("status %d", status)
		}
	}
	c.wait("the marked ones to be closed", func() bool { return c.open() == 6 })
}

// Addresses that have their share take 500 connections of others in a second, also at once after a pause, and an
// address with fewer as many as it opens.
func TestEvictionsInTime(t *testing.T) {
	l := &Listener{cfg: Config{Max: 16}, addresses: map[netip.Addr]*address{}}
	large := netip.MustParseAddr("127.0.0.1")
	l.addresses[large] = &address{conns: 1}
	evict := func(from netip.Addr, now time.Duration) (n int) {
		for range 1000 {
			c := &conn{index: -1, listener: l, owner: &owner{conns: 9}, address: &address{conns: 9}}
			c.enter(receiving, 0)
			c.socket, _ = net.Pipe()
			l.conns, l.stats.Evicted = []*conn{c}, map[string]int64{}
			if l.evict(from, now) {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		from string
		now  time.Duration
		want int
	}{
		{"127.0.0.1", time.Minute, 501}, {"127.0.0.1", time.Minute + time.Millisecond, 0},
		{"127.0.0.2", time.Minute + time.Millisecond, 1000}, {"127.0.0.1", time.Minute + 21*time.Millisecond, 10},
		{"127.0.0.1", time.Hour, 501},
	} {
		if n := evict(netip.MustParseAddr(step.from), step.now); n != step.want {
			t.Errorf("%s after %v: %d evictions, want %d", step.from, step.now, n, step.want)
		}
	}
}

// A connection is evicted for one of an address that has its share, and no more than its own address has.
func TestEquals(t *testing.T) {
	l := &Listener{cfg: Config{Max: 64}, addresses: map[netip.Addr]*address{}}
	from := netip.MustParseAddr("127.0.0.1")
	for _, test := range []struct {
		its, arriving int // connections of the addresses
		wait          time.Duration
		want          bool
	}{
		{9, 1, 2 * shortWait, true}, {9, 9, greedyWait, true}, {8, 9, 2 * shortWait, false}, {9, 9, greedyWait - 1, false},
		{9, 4, greedyWait, true}, {3, 4, time.Second, false}, {2, 3, shortWait, true}, {2, 3, shortWait - 1, false},
	} {
		c := &conn{index: -1, listener: l, owner: &owner{conns: 1}, address: &address{conns: test.its}}
		c.enter(receiving, 0)
		c.socket, _ = net.Pipe()
		l.conns, l.addresses[from], l.stats = []*conn{c}, &address{conns: test.arriving}, newStats()
		if got := l.evict(from, test.wait); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A trusted proxy is no address: its connections count for nobody.
func TestExempt(t *testing.T) {
	c, _ := serveTokens(t, 4, func(cfg *Config) { cfg.Exempt = netip.MustParsePrefix("127.0.0.9/32").Contains })
	c.dialMany(2, "127.0.0.9", "")
	c.dialMany(2, "127.0.0.1", "")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.addresses) != 1 || c.connsOf(netip.MustParseAddr("127.0.0.1")) != 2 {
		t.Errorf("addresses: %v", c.addresses)
	}
}
