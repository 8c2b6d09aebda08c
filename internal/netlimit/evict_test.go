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
	short := func(address string, more time.Duration) open { return idleFor(address, 20*ms+more) }
	for name, test := range map[string]struct {
		max      int
		open     []open
		arriving string
		evicted  []int // indices of open
	}{
		"more than its share: the longest wait first": {10,
			[]open{short(a, 1), short(a, 2), short(a, 1), idleFor(b, 999*ms)}, c, []int{1}},
		"more than its share: however short the wait": {10,
			[]open{idleFor(a, 0), idleFor(a, 1), idleFor(a, 0)}, c, []int{1}},
		"in favour of the same address: after 20 ms": {10,
			[]open{idleFor(a, 20*ms-1), short(a, 0), idleFor(a, 20*ms-1)}, a, []int{1}},
		"in favour of the same address: not before 20 ms": {10,
			[]open{idleFor(a, 20*ms-1), idleFor(a, 20*ms-1), idleFor(a, 20*ms-1)}, a, nil},
		"in favour of an address with its share: not before 20 ms": {10,
			[]open{idleFor(a, 20*ms-1), idleFor(a, 20*ms-1), idleFor(a, 20*ms-1), short(b, 1), short(b, 1)}, b, nil},
		"exactly its share": {10,
			[]open{short(a, 1), short(a, 1)}, c, nil},
		"its share, and one more arrives from it": {10,
			[]open{short(a, 0), short(a, 1)}, a, []int{1}},
		"less than its share, and one more arrives from it": {10,
			[]open{short(a, 1)}, a, nil},
		"only of the address with the most": {10,
			[]open{short(a, 9), short(a, 9), short(a, 9), short(b, 1), short(b, 1), short(b, 1), short(b, 2)},
			c, []int{6}},
		"only as many as exceed its share": {640,
			[]open{short(a, 1), short(a, 2), short(a, 3), short(a, 4)}, c, []int{2, 3}},
		"a few at a time": {64, // two
			[]open{short(a, 1), short(a, 2), short(a, 3), short(a, 4), short(a, 5)}, c, []int{3, 4}},
		"in every phase in which it waits for its client": {640,
			[]open{{a, 0, fresh, 20 * ms}, {a, 0, idle, 20 * ms}, {a, 0, receiving, 20 * ms},
				{a, 0, receivingBody, 20 * ms}, {a, 0, writing, 20 * ms}, {a, 0, parsed, time.Hour},
				{a, 0, handling, time.Hour}}, c, []int{0, 1, 2, 3, 4}},
		"none of its own waits: others that are overdue": {10,
			[]open{{a, 0, handling, 0}, {a, 0, parsed, 0}, {a, 0, handling, 0}, idleFor(b, 100*ms)}, c, []int{3}},
		"none of its own waits: no others for an address with its share": {10,
			[]open{{a, 0, handling, 0}, {a, 0, parsed, 0}, idleFor(b, 1000*ms)}, a, nil},
		"connections with a token do not count for their address": {10,
			[]open{{a, 1, idle, 9}, {a, 2, idle, 9}, {a, 3, idle, 9}, short(a, 1), short(a, 2)}, c, nil},
		"none with a token in favour of an address with its share": {10,
			[]open{{b, 1, idle, time.Hour}, {a, 0, handling, 0}, {a, 0, handling, 0}}, a, nil},
		"without a token before those with one": {640,
			[]open{{a, 1, idle, time.Hour}, idleFor(b, 100*ms)}, c, []int{1}},
		"those with a token, if no other is overdue": {640,
			[]open{{a, 1, idle, time.Hour}, {a, 1, idle, 1000 * ms}, {a, 1, idle, 999 * ms}, idleFor(b, 100*ms-1)}, c,
			[]int{0, 1}},
		"with a token, while those without one are a default share": {32,
			[]open{{a, 1, idle, time.Hour}, short(a, 1), short(b, 1)}, c, []int{0}},
		"not with a token, while those without one are more": {32,
			[]open{{a, 1, idle, time.Hour}, short(a, 1), short(b, 1), short(c, 1)}, c, nil},
		"of a token that has most slots, after 100 ms": {6,
			[]open{{a, 1, idle, 100 * ms}, {a, 1, idle, 100*ms - 1}, {a, 1, writing, 0}, {a, 1, handling, time.Hour},
				{b, 2, idle, time.Hour}}, c, []int{0}},
		"of no other token instead": {6,
			[]open{{a, 1, idle, 100*ms - 1}, {a, 1, idle, 0}, {a, 1, idle, 0}, {a, 1, idle, 0}, {b, 2, idle, time.Hour}},
			c, nil},
		"a token has exactly half of all slots": {8,
			[]open{{a, 1, idle, 999 * ms}, {a, 1, idle, 0}, {a, 1, idle, 0}, {a, 1, idle, 0}, {b, 2, idle, time.Hour}},
			c, []int{4}},
		"a token alone": {6,
			[]open{{a, 1, idle, 999 * ms}, {a, 1, idle, 0}, {a, 1, idle, 0}, {a, 1, idle, 0}}, c, nil},
		"connections without an address have no limit": {640,
			[]open{short("", 2), short("", 1), short("", 1), short("", 1)}, c, nil},
		"exempt addresses have no limit": {640,
			[]open{short("192.0.2.1", 2), short("192.0.2.1", 1), short("::ffff:192.0.2.1", 1)}, "192.0.2.1", nil},
		"exempt addresses: overdue as others": {640,
			[]open{idleFor("192.0.2.1", 100*ms), idleFor("", 100*ms)}, "192.0.2.1", []int{0, 1}},
		"a /64 network counts as one address": {10,
			[]open{short("2001:db8::1", 1), short("2001:db8::2", 2), short("2001:db8:0:0:1::", 1)}, a, []int{1}},
		"different /64 networks count separately": {10,
			[]open{short("2001:db8::1", 1), short("2001:db8::2", 2), short("2001:db8:0:1::1", 1)}, a, nil},
		"an IPv4-mapped IPv6 address is the IPv4 address": {10,
			[]open{short(a, 1), short("::ffff:"+a, 2), short(a, 1)}, c, []int{1}},
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
			did := l.evict(now, l.keyOf(netip.MustParseAddr(test.arriving)))
			var evicted []int
			for i, c := range conns {
				if !slices.Contains(l.open(), c) {
					evicted = append(evicted, i)
				}
			}
			if !slices.Equal(evicted, test.evicted) || did != (len(evicted) > 0) || l.overloaded.isSet() != did {
				t.Errorf("evict() = %v and evicted %v, want %v", did, evicted, test.evicted)
			}
			var counted, open int64
			for _, n := range l.Stats().Evicted {
				counted += n
			}
			for _, n := range l.Stats().Open {
				open += n
			}
			if counted != int64(len(evicted)) || open != int64(len(test.open)-len(evicted)) {
				t.Errorf("Stats() = %+v after %d evictions of %d connections", l.Stats(), len(evicted), len(test.open))
			}
		})
	}
}

// A search that finds nothing is not repeated for 10 ms; after one that finds something, the next may follow at once.
func TestEvictInterval(t *testing.T) {
	cfg, _ := testConfig(10)
	l := New(newPipes(), cfg)
	c := l.track(from(""))
	now := l.start.Add(time.Hour)
	c.move(idle, now)
	if l.evict(now, ownerKey{}) {
		t.Error("evicted at once")
	}
	c.move(idle, l.start)
	if l.evict(now.Add(10*time.Millisecond-1), ownerKey{}) {
		t.Error("searched again within 10 ms")
	}
	if !l.evict(now.Add(10*time.Millisecond), ownerKey{}) {
		t.Error("not searched again after 10 ms")
	}
	l.track(from("")).move(idle, l.start)
	if !l.evict(now.Add(10*time.Millisecond), ownerKey{}) {
		t.Error("not searched again after a success")
	}

	cfg.PerAddress = 1
	l = New(newPipes(), cfg)
	greedy := l.keyOf(netip.MustParseAddr("10.0.0.1"))
	l.track(from("10.0.0.1")).move(handling, l.start)
	l.track(from("10.0.0.2")).move(idle, l.start)
	if l.evict(now, greedy) {
		t.Error("evicted in favour of an address that has its share")
	}
	if !l.evict(now, ownerKey{}) {
		t.Error("not searched in favour of another")
	}
	l.track(from("10.0.0.1")).move(idle, l.start)
	if l.evict(now.Add(1), greedy) || !l.evict(now.Add(10*time.Millisecond), greedy) {
		t.Error("not searched again after 10 ms in favour of an address that has its share")
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

// A refusal shortens the waits of others only if the refused address has less than its share.
func TestRefusing(t *testing.T) {
	for address, want := range map[string]bool{"10.0.0.1": false, "10.0.0.2": true} {
		cfg, _ := testConfig(2)
		l := New(newPipes(), cfg)
		l.track(from("10.0.0.1")).move(handling, l.start)
		l.track(from("")).move(handling, l.start)
		l.admitting.Lock()
		if l.admit(time.Now(), l.keyOf(netip.MustParseAddr(address)), nil) {
			t.Errorf("%s: admitted", address)
		}
		l.admitting.Unlock()
		if got := l.refusing.isSet(); got != want {
			t.Errorf("%s: refusing %v, want %v", address, got, want)
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
	l.evict(time.Now().Add(time.Second-1), ownerKey{})
	l.pollBacklog(time.Now())
	if got := messages.String(); !strings.HasPrefix(got, "closed connections connections 1 limit 4 address 10.0.0.") {
		t.Errorf("log: %q", got)
	}
}

// The largest address is to lose what exceeds its share, or twice the number of the arriving address with the new one.
func TestBalance(t *testing.T) {
	for _, test := range []struct {
		largest, count, share int
		over                  int
		greedy                bool
		kind                  int
	}{
		{5, 0, 4, 1, false, 1}, {5, 3, 4, 1, false, 1}, {5, 4, 4, 1, true, 0}, {4, 0, 4, 0, false, 2},
		{3, 2, 4, -1, false, 2}, {40, 10, 10, 30, true, 0},
	} {
		cfg, _ := testConfig(100)
		cfg.PerAddress = test.share
		l := New(newPipes(), cfg)
		for range test.largest {
			l.track(from("10.0.0.1"))
		}
		for range test.count {
			l.track(from("10.0.0.2"))
		}
		b := l.balance(l.keyOf(netip.MustParseAddr("10.0.0.2")))
		if b.over != test.over || b.greedy != test.greedy || b.kind() != test.kind {
			t.Errorf("%+v: %+v, kind %d", test, b, b.kind())
		}
		if largest := b.largest.key.address.String(); largest != "10.0.0.1" {
			t.Errorf("%+v: the largest is %s", test, largest)
		}
		if b := l.balance(ownerKey{}); b.greedy {
			t.Error("a connection without an address is greedy")
		}
	}
	cfg, _ := testConfig(100)
	l := New(newPipes(), cfg)
	l.track(from(""))
	if b := l.balance(ownerKey{}); b.largest != nil || b.over != 0 || b.greedy {
		t.Errorf("without addresses: %+v", b)
	}
}
