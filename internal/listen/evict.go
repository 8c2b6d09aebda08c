package listen

import (
	"net"
	"net/netip"
	"time"
)

// rank is why a connection makes way. The lowest is first.
type rank uint8

const (
	overShare    rank = iota // it waits, has no token, and its address has more connections than the arriving one
	withoutToken             // it waits, and has no token
	busy                     // like overShare, but with a request in flight
	dominant                 // its token has more than half of all connections
	withToken                // it has waited for seconds
	never
)

const (
	// greedyWait is how long a connection must have waited to make way for one of an address that has as many. Without
	// it, the clients of one address would close each other's connections while their requests are in transit.
	greedyWait   = 20 * time.Millisecond
	shortWait    = 100 * time.Millisecond
	shedInterval = 8 * time.Millisecond // see arrival.sheds
)

// patience is how long a connection with a token may wait while all are in use.
var patience = [...]time.Duration{idle: time.Second, receiving: 2 * time.Second, writing: 25 * time.Second}

// arrival is what is known of a connection that arrives while all are in use.
type arrival struct {
	total int  // connections of its address
	small bool // which are less than the share of an address
	sheds bool // a token with more than half of all connections may lose one: at any time if small, else now and then
	spare bool // clients without a token have so few connections that those with one may make way
	most  int  // connections that a token may have without losing one
}

// candidate is a connection that may make way.
type candidate struct {
	*conn
	state     state
	kind      kind
	wait      time.Duration // so far
	anonymous bool
	counted   bool // its address counts
	peers     int  // connections of its owner
	total     int  // connections of its address
	rank      rank
	closes    bool // at once; otherwise after its next response
}

// judge sets the rank of a candidate, and whether it can be closed at once.
//
//	rank          token   must have waited
//	overShare     none    0; writing 100 ms
//	withoutToken  none    20 ms if its address has as many connections as the arriving one; else 100 ms, if small
//	busy          none    the service works for it
//	dominant      > half  0; it is closed at once after 100 ms, or 2 s with a part of a request
//	withToken     any     idle 1 s, receiving 2 s, writing 25 s
func (a arrival) judge(v *candidate) {
	waits := v.kind < working
	larger := v.counted && v.peers >= a.total+2 // still after one is closed
	v.rank, v.closes = never, waits
	switch {
	case v.kind == gone:
	case v.anonymous && larger && !waits:
		v.rank = busy
	case v.anonymous && larger && (v.kind != writing || v.wait >= shortWait):
		v.rank = overShare
	case v.anonymous:
		equal := v.counted && v.total >= a.total && v.wait >= greedyWait
		if waits && (equal || a.small && v.wait >= shortWait) {
			v.rank = withoutToken
		}
	case v.peers > a.most:
		if a.sheds {
			v.rank = dominant
			v.closes = waits && v.wait >= shortWait && (v.kind != receiving || v.wait >= patience[receiving])
		}
	case waits && a.spare && a.small && v.wait >= patience[v.kind]:
		v.rank = withToken
	}
}

// before reports whether v makes way sooner than w: by rank, then that of the owner with the most connections, then one
// that closes at once, beginning with the longest wait, then the one with the most recent request.
func (v *candidate) before(w *candidate) bool {
	switch {
	case v.rank != w.rank:
		return v.rank < w.rank
	case v.peers != w.peers:
		return v.peers > w.peers
	case v.closes != w.closes:
		return v.closes
	}
	return v.closes == (v.wait > w.wait)
}

// makeRoom lets one connection make way for one from an address, and reports whether it did. The caller holds mu.
func (l *Listener) makeRoom(address netip.Addr, now time.Duration) bool {
	a := arrival{total: l.addresses[address], spare: l.anonymous <= l.share(), most: l.cfg.Max / 2}
	a.small = a.total < l.share()
	a.sheds = a.small || now-l.lastShed >= shedInterval
	for range 3 { // the state of the first choice may have changed
		v := l.choose(a, now)
		if v.rank == never {
			return false
		}
		switch {
		case !v.closes:
			l.mark(v.conn)
		case v.kind == idle:
			l.closeIdle(v.conn)
		case !l.closeNow(v.conn, v.state):
			continue
		}
		if v.rank == dominant {
			l.lastShed = now
		}
		l.counters.evicted[v.rank].Add(1)
		return true
	}
	return false
}

// choose returns the first connection to make way. It also closes marked ones that wait: they had their last response.
func (l *Listener) choose(a arrival, now time.Duration) candidate {
	first, mayMark := candidate{rank: never}, l.marked < l.maxMarked
	for i := 0; i < len(l.conns); i++ {
		c := l.conns[i]
		s := c.state.Load()
		v := candidate{conn: c, state: s, kind: s.kind(), wait: now - s.since(), anonymous: c.owner.isAnonymous(),
			counted: c.address.IsValid(), peers: c.owner.conns, total: l.addresses[c.address]}
		if c.closing.Load() {
			if l.expire(v) {
				i-- // another took its place
			}
			continue
		}
		a.judge(&v)
		if v.before(&first) && (mayMark || v.closes && v.kind != idle) {
			first = v
		}
	}
	return first
}

// expire closes a marked connection that waits, and reports whether it is no longer open.
func (l *Listener) expire(v candidate) bool {
	limit := shortWait
	if v.kind != idle && !v.anonymous {
		limit = patience[receiving]
	}
	switch {
	case v.kind >= working || v.wait < limit:
	case v.kind == idle:
		l.closeIdle(v.conn)
	default:
		return l.closeNow(v.conn, v.state)
	}
	return false
}

// mark makes the next response of a connection the last. It does not count any more.
func (l *Listener) mark(c *conn) {
	if !c.closing.Swap(true) {
		l.marked++
	}
}

// closeIdle closes the receiving side of a connection: a request that has arrived still gets a response, the last.
func (l *Listener) closeIdle(c *conn) {
	l.mark(c)
	if half, ok := c.socket.(interface{ CloseRead() error }); ok {
		half.CloseRead()
	}
}

// closeNow closes a connection if it is still in the given state.
func (l *Listener) closeNow(c *conn, was state) bool {
	if !c.state.CompareAndSwap(was, newState(gone, 0)) {
		return false
	}
	if tcp, ok := c.socket.(*net.TCPConn); ok && was.kind() == writing {
		tcp.SetLinger(0) // the kernel discards what the client has not read
	}
	c.socket.Close()
	l.remove(c)
	return true
}
