package netlimit

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	address net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.address }

// from is a connection from an address, or from none if that is empty.
func from(address string) net.Conn {
	if address == "" {
		return newPipe()
	}
	return addressed{newPipe(), net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))}
}

func TestEvict(t *testing.T) {
	const a, b, c = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	ms := time.Millisecond
	type open struct {
		address string
		token   byte
		phase   phase
		wait    time.Duration
	}
	idleFor := func(address string, d time.Duration) open { return open{address, 0, idle, d} }
	handled := func(address string, token byte) open { return open{address, token, handling, time.Hour} }
	for name, test := range map[string]struct {
		max      int
		open     []open
		arriving string
		evicted  []int // indices of open
		marked   []int // to be closed after their response
	}{
		"of a larger address: the longest wait first": {10,
			[]open{idleFor(a, 1), idleFor(a, 2), idleFor(b, 99*ms)}, c, []int{1}, nil},
		"of the address with the most, however short the wait": {10,
			[]open{idleFor(a, 0), idleFor(a, 0), idleFor(b, 9), idleFor(b, 0), idleFor(b, 0)}, c, []int{2}, nil},
		"of an address with one more: not before 100 ms": {10,
			[]open{idleFor(a, 100*ms-1)}, c, nil, nil},
		"of an address with two more than the arriving one": {10,
			[]open{idleFor(a, 0), idleFor(a, 1), idleFor(a, 0), idleFor(b, 0)}, b, []int{1}, nil},
		"connections with a token count for the arriving address": {10,
			[]open{idleFor(a, 0), idleFor(a, 1), idleFor(a, 0), {b, 1, idle, 0}, handled(b, 2)}, b, nil, nil},
		"connections with a token do not count for the larger one": {10,
			[]open{{a, 1, idle, 9}, {a, 2, idle, 9}, {a, 3, idle, 9}, idleFor(a, 1)}, c, nil, nil},
		"in favour of the same address, which has its share: after 20 ms": {10,
			[]open{idleFor(a, 20*ms-1), idleFor(a, 20*ms), idleFor(a, 20*ms-1)}, a, []int{1}, nil},
		"in favour of an address that has its share, of one with as many: after 20 ms": {10,
			[]open{idleFor(a, 20*ms), idleFor(a, 0), idleFor(b, 20*ms-1), idleFor(b, 0)}, b, []int{0}, nil},
		"of a smaller address: after 100 ms": {10,
			[]open{idleFor(a, 100*ms), handled(b, 0)}, b, []int{0}, nil},
		"of a smaller address, in favour of one that has its share: never": {10,
			[]open{idleFor(a, time.Hour), handled(b, 0), handled(b, 0)}, b, nil, nil},
		"of a larger address: one at a time": {64,
			[]open{idleFor(a, 1), idleFor(a, 2), idleFor(a, 3), idleFor(a, 4)}, c, []int{3}, nil},
		"of many slots, an address is larger with 8 more": {1024, []open{handled(a, 0), handled(a, 0), handled(a, 0),
			handled(a, 0), handled(a, 0), handled(a, 0), handled(a, 0), idleFor(a, 0)}, c, []int{7}, nil},
		"of many slots, an address is not larger with 7 more": {1024, []open{handled(a, 0), handled(a, 0), handled(a, 0),
			handled(a, 0), handled(a, 0), handled(a, 0), idleFor(a, 0)}, c, nil, nil},
		"in every phase in which it waits for its client": {640,
			[]open{{a, 0, fresh, 100 * ms}, {a, 0, idle, 100 * ms}, {a, 0, receiving, 100 * ms},
				{b, 0, receivingBody, 100 * ms}, {b, 0, writing, 100 * ms}, handled(b, 0)}, c, []int{0, 1, 2, 3, 4}, nil},
		"with a request in flight: the most recent, after its response": {10,
			[]open{handled(a, 0), {a, 0, parsed, 0}, handled(a, 0)}, c, nil, []int{1}},
		"another that waits, rather than one with a request in flight": {10,
			[]open{handled(a, 0), handled(a, 0), idleFor(b, 100*ms)}, c, []int{2}, nil},
		"another that waits, in favour of an address with many tokens": {32,
			[]open{idleFor(a, 100*ms), handled(b, 1), handled(b, 2), handled(b, 3)}, b, []int{0}, nil},
		"without a token before those with one": {640,
			[]open{{a, 1, idle, time.Hour}, idleFor(b, 100*ms)}, c, []int{1}, nil},
		"those with a token, if no other is overdue": {640,
			[]open{{a, 1, idle, time.Hour}, {a, 1, idle, 1000 * ms}, {a, 1, idle, 999 * ms}, idleFor(b, 100*ms-1)}, c,
			[]int{0}, nil},
		"with a token and an unread response: after 25 s": {640,
			[]open{{a, 1, writing, 25*time.Second - 1}, {a, 1, writing, 25 * time.Second}}, c, []int{1}, nil},
		"none with a token in favour of an address with its share": {10,
			[]open{{b, 1, idle, time.Hour}, handled(a, 0), handled(a, 0)}, a, nil, nil},
		"not with a token, while those without one are more than a default share": {32,
			[]open{{a, 1, idle, time.Hour}, idleFor(a, 0), idleFor(b, 0), idleFor(c, 0)}, c, nil, nil},
		"of a token that has most slots: after 100 ms": {6,
			[]open{{a, 1, idle, 100 * ms}, {a, 1, idle, 0}, {a, 1, receiving, 2000*ms - 1}, handled(a, 1),
				{b, 2, idle, time.Hour}}, c, []int{0}, nil},
		"of a token that has most slots: otherwise after its response": {6,
			[]open{handled(a, 1), {a, 1, handling, 0}, handled(a, 1), handled(a, 1), {b, 2, idle, time.Hour}}, c, nil, []int{1}},
		"of a token that has most slots, although no other token is connected": {6,
			[]open{{a, 1, handling, 0}, handled(a, 1), handled(a, 1), handled(a, 1)}, c, nil, []int{0}},
		"of a token that has most slots, in favour of an address with its share": {6,
			[]open{{a, 1, handling, 0}, handled(a, 1), handled(a, 1), handled(a, 1), handled(b, 2)}, a, nil, []int{0}},
		"none of a smaller address, in favour of the address of a token that has most slots": {6,
			[]open{handled(a, 1), handled(a, 1), handled(a, 1), handled(a, 1), idleFor(b, 100*ms)}, a, nil, nil},
		"if no other token is connected: only after the waits of other tokens": {6,
			[]open{handled(a, 1), {a, 1, idle, 1000*ms - 1}, {a, 1, receiving, 2000 * ms}, handled(a, 1)}, a, []int{2}, nil},
		"not so if no other token is connected": {6,
			[]open{handled(a, 1), handled(a, 1), handled(a, 1), handled(a, 1)}, a, nil, nil},
		"a token has exactly half of all slots": {8,
			[]open{{a, 1, idle, 0}, {a, 1, idle, 0}, {a, 1, idle, 0}, {a, 1, idle, 0}, {b, 2, idle, time.Hour}},
			c, []int{4}, nil},
		"connections without an address are of no larger address": {640,
			[]open{idleFor("", 2), idleFor("", 1), handled("", 0)}, c, nil, nil},
		"exempt addresses: overdue as others": {640,
			[]open{idleFor("192.0.2.1", 100*ms), idleFor("::ffff:192.0.2.1", 100*ms-1), idleFor("", 100*ms)},
			"192.0.2.1", []int{0, 2}, nil},
		"a /64 network counts as one address": {10,
			[]open{idleFor("2001:db8::1", 1), idleFor("2001:db8:0:0:1::", 2)}, a, []int{1}, nil},
		"different /64 networks count separately": {10,
			[]open{idleFor("2001:db8::1", 1), idleFor("2001:db8:0:1::1", 1)}, a, nil, nil},
		"an IPv4-mapped IPv6 address is the IPv4 address": {10,
			[]open{idleFor(a, 1), idleFor("::ffff:"+a, 2)}, c, []int{1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := testConfig(test.max)
			cfg.PerAddress, cfg.Exempt = 2, netip.MustParsePrefix("192.0.2.0/24").Contains
			l := New(newPipes(), cfg)
			now := l.start.Add(2 * time.Hour)
			var conns []*conn
			for _, o := range test.open {
				c := l.track(from(o.address))
				if o.token != 0 {
					l.Identify(connContext(t.Context(), c), [32]byte{o.token})
				}
				c.move(o.phase, now.Add(-o.wait))
				conns = append(conns, c)
			}
			did := l.evict(now, l.countedAddress(netip.MustParseAddr(test.arriving)), true)
			var evicted, marked []int
			for i, c := range conns {
				if c.closing.Load() {
					marked = append(marked, i)
				}
				if !slices.Contains(l.open(), c) {
					evicted = append(evicted, i)
				}
			}
			gone := len(evicted) + len(marked)
			if !slices.Equal(evicted, test.evicted) || !slices.Equal(marked, test.marked) || did != (gone > 0) ||
				l.overloaded.isSet() != did {
				t.Errorf("evict() = %v, evicted %v and marked %v, want %v and %v", did, evicted, marked, test.evicted,
					test.marked)
			}
			var counted int64
			for _, n := range l.Stats().Evicted {
				counted += n
			}
			if counted != int64(gone) || int(l.count.Load()) != len(test.open)-gone {
				t.Errorf("Stats() = %+v and %d slots are taken after %d evictions of %d connections", l.Stats(),
					l.count.Load(), gone, len(test.open))
			}
		})
	}
}

// A search that finds nothing is not repeated for 10 ms for addresses with as many connections; one with fewer may find
// some. After a search that finds something, the next may follow at once.
func TestEvictInterval(t *testing.T) {
	cfg, _ := testConfig(10)
	l := New(newPipes(), cfg)
	small, large := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	c := l.track(from(large.String()))
	now := l.start.Add(time.Hour)
	c.move(idle, now)
	if l.evict(now, large, true) {
		t.Error("evicted at once")
	}
	c.move(idle, l.start)
	if l.evict(now.Add(10*time.Millisecond-1), large, true) {
		t.Error("searched again within 10 ms")
	}
	if !l.evict(now.Add(10*time.Millisecond-1), small, true) {
		t.Error("not searched for an address with fewer connections")
	}
	l.track(from("")).move(idle, l.start)
	if !l.evict(now.Add(10*time.Millisecond-1), small, true) {
		t.Error("not searched again after a success")
	}
	l.track(from(large.String())).move(idle, l.start)
	if !l.evict(now.Add(10*time.Millisecond), large, true) {
		t.Error("not searched again after 10 ms")
	}
}

// A token with more than half of all slots loses one every 8 ms in favour of an address that has its share.
func TestShedInterval(t *testing.T) {
	cfg, _ := testConfig(4)
	l := New(newPipes(), cfg)
	address := netip.MustParseAddr("10.0.0.1")
	for i := range 4 {
		c := l.track(from(address.String()))
		l.Identify(connContext(t.Context(), c), [32]byte{byte(1 + i/3)})
		c.move(handling, l.start)
	}
	l.maxMarked = 4
	now := l.start.Add(time.Hour)
	if !l.evict(now, address, true) {
		t.Error("no connection is marked")
	}
	l.track(from(address.String())).move(handling, l.start)
	if l.evict(now.Add(shedInterval-1), address, true) {
		t.Error("another is marked within 8 ms")
	}
	if !l.evict(now.Add(shedInterval+evictInterval), address, true) {
		t.Error("no other is marked after 8 ms")
	}
}

// A marked connection has no slot. Few may be marked at a time, and one whose client sends nothing more is closed.
func TestMark(t *testing.T) {
	cfg, _ := testConfig(8)
	l := New(newPipes(), cfg)
	var conns []*conn
	for range 3 {
		c := l.track(from("10.0.0.1"))
		c.move(handling, l.start)
		conns = append(conns, c)
	}
	if !l.mark(conns[0]) || l.mark(conns[0]) || !l.mark(conns[1]) || l.mark(conns[2]) {
		t.Error("not two of three connections were marked, once each")
	}
	last := func(c *conn) bool { return l.Last(connContext(t.Context(), c)) }
	if n := l.count.Load(); n != 1 || !last(conns[0]) || last(conns[2]) {
		t.Errorf("%d slots are taken, want 1; the response of a marked connection is the last: %v, of another: %v", n,
			last(conns[0]), last(conns[2]))
	}
	conns[0].move(idle, l.start)
	l.evict(l.start.Add(shortWait), netip.Addr{}, true)
	eventually(t, "the idle connection to be closed", func() bool { return !slices.Contains(l.open(), conns[0]) })
	conns[1].Close()
	conns[2].Close()
	if l.mark(conns[2]) || l.marked != 0 || l.count.Load() != 0 || len(l.owners.byAddress) != 0 {
		t.Errorf("%d marked, %d slots and %v are left", l.marked, l.count.Load(), l.owners.byAddress)
	}
}

// By default, the share is a sixteenth of the connections, and at least one.
func TestDefaultShare(t *testing.T) {
	for most, want := range map[int]int{4: 1, 16: 1, 32: 2, 1024: 64} {
		cfg, _ := testConfig(most)
		if got := New(newPipes(), cfg).cfg.PerAddress; got != want {
			t.Errorf("the share of %d is %d, want %d", most, got, want)
		}
	}
}

// Evictions from the address with the most connections are logged with the address.
func TestEvictionIsLogged(t *testing.T) {
	cfg, messages := testConfig(4)
	l := New(newPipes(), cfg)
	for i := range 4 {
		l.track(from(fmt.Sprintf("10.0.0.%d", 1+i%2))).move(idle, time.Now())
	}
	l.evict(time.Now().Add(time.Second-1), netip.Addr{}, true)
	l.pollBacklog(time.Now())
	if got := messages.String(); !strings.HasPrefix(got, "closed connections connections 1 limit 4 from 10.0.0.") {
		t.Errorf("log: %q", got)
	}
}
