package listen

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// rank is why a connection is evicted. The lowest rank is evicted first.
type rank uint8

const (
	overShare    rank = iota // it waits, has no token, and its address has more than its share of connections
	withoutToken             // it waits, and has no token
	busy                     // like overShare, but with a request in flight
	dominant                 // its token has more than half of all connections
	withToken                // it has waited for seconds
	never
)

const (
	// greedyWait is how long a connection must have waited to be evicted for an address that has as many connections.
	// Without it, the clients of one address would close each other's connections while their requests are in transit.
	greedyWait = 20 * time.Millisecond
	shortWait  = 100 * time.Millisecond
	// All addresses that have their share cause one eviction per evictInterval together, and after a pause as many at once
	// as evictBurst has. A refusal costs less than what their connections would do, such as a handshake of TLS.
	evictInterval = 2 * time.Millisecond
	evictBurst    = time.Second
)

// patience is how long a connection with a token may wait while all are in use.
var patience = [...]time.Duration{idle: time.Second, receiving: 2 * time.Second, writing: 25 * time.Second}

// arrival is what is known of a connection that arrives while all are in use.
type arrival struct {
	total int  // connections of its address
	share int  // connections that an address may have and still take those of others
	most  int  // connections that a token may have without losing one
	spare bool // it may take a connection of any token: those without a token are few
}

// candidate is a connection that may be evicted.
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
//	rank          owner                                  must have waited
//	overShare     address over its share                 0; writing 100 ms
//	withoutToken  address                                20 ms if it has as many connections as the arriving one;
//	                                                     else 100 ms, if the arriving one is below its share
//	busy          address over its share                 the service works for it
//	dominant      token with more than half of all       0 to be marked; to be closed 100 ms, or 2 s with a part of a
//	                                                     request
//	withToken     token                                  idle 1 s, receiving 2 s, writing 25 s
func (a arrival) judge(v *candidate) {
	waits, small := v.kind < working, a.total < a.share
	over := v.counted && v.peers > a.share && v.peers >= a.total+2 // it has more than the arriving one afterwards too
	v.rank, v.closes = never, waits
	switch {
	case v.kind == gone:
	case v.anonymous && over && !waits:
		v.rank = busy
	case v.anonymous && over && (v.kind != writing || v.wait >= shortWait):
		v.rank = overShare
	case v.anonymous:
		equal := v.counted && v.total >= a.total && v.wait >= greedyWait
		if waits && (equal || small && v.wait >= shortWait) {
			v.rank = withoutToken
		}
	case v.peers > a.most:
		v.rank = dominant
		v.closes = waits && v.wait >= shortWait && (v.kind != receiving || v.wait >= patience[receiving])
	case waits && a.spare && small && v.wait >= patience[v.kind]:
		v.rank = withToken
	}
}

// before reports whether v is evicted before w. The lower rank is first. Within overShare and busy, the owner with more
// connections is first. Then come connections that close at once, the longest wait first, and then the others, the
// most recent request first.
func (v *candidate) before(w *candidate) bool {
	switch {
	case v.rank != w.rank:
		return v.rank < w.rank
	case v.peers != w.peers && (v.rank == overShare || v.rank == busy):
		return v.peers > w.peers
	case v.closes != w.closes:
		return v.closes
	}
	return v.closes == (v.wait > w.wait)
}

// evict evicts one connection in favour of an address, and reports whether it did. The caller holds mu.
func (l *Listener) evict(from netip.Addr, now time.Duration) bool {
	a := arrival{total: l.connsOf(from), share: l.share(), most: l.cfg.Max / 2, spare: l.anonymous <= l.share()}
	if a.total >= a.share {
		if l.nextEviction > now {
			return false
		}
		l.nextEviction = max(l.nextEviction, now-evictBurst) + evictInterval
	}
	for range 3 { // the state of the first choice may have changed
		v := l.choose(a, now)
		switch {
		case v.rank == never:
			return false
		case v.closes && v.kind != idle:
			if !l.closeNow(v.conn, v.state) {
				continue
			}
		case v.conn.state.Load() != v.state:
			continue
		case v.closes:
			l.closeIdle(v.conn)
		default:
			l.mark(v.conn)
		}
		l.stats.Evicted[evictionNames[v.rank]]++
		return true
	}
	return false
}

// choose returns the connection to evict first. It also closes marked connections that wait.
func (l *Listener) choose(a arrival, now time.Duration) candidate {
	first, mayMark := candidate{rank: never}, l.marked < l.maxMarked
	for _, c := range slices.Backward(l.conns) { // closeNow moves the last one to its place
		s := c.state.Load()
		v := candidate{conn: c, state: s, kind: s.kind(), wait: now - s.since(), anonymous: c.owner.isAnonymous(),
			peers: c.owner.conns}
		if c.closing.Load() {
			l.expire(v)
			continue
		}
		if c.address != nil {
			v.counted, v.total = true, c.address.conns
		}
		a.judge(&v)
		if v.before(&first) && (mayMark || v.closes && v.kind != idle) {
			first = v
		}
	}
	return first
}

// expire closes a marked connection that waits.
func (l *Listener) expire(v candidate) {
	limit := shortWait
	if v.kind != idle && !v.anonymous {
		limit = patience[receiving]
	}
	switch {
	case v.kind >= working || v.wait < limit:
	case v.kind == idle:
		l.closeIdle(v.conn)
	default:
		l.closeNow(v.conn, v.state)
	}
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
