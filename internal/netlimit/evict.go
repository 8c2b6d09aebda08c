package netlimit

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

const (
	evictInterval = 10 * time.Millisecond // after a search without a result, because each visits all connections

	// shedInterval is how often a token with more than half of all slots loses one in favour of an address that has
	// its share.
	shedInterval = 8 * time.Millisecond

	// greedyWait is how long a connection must have waited to be evicted in favour of an address that has its share.
	// Without it, many clients of one address would evict each other while their requests are in transit.
	greedyWait = 20 * time.Millisecond
)

// rank orders the connections that may be evicted: the lowest rank is first.
type rank int

const (
	overShare rank = iota // without a token, of an address with more of these than the arriving address has in all
	anonymous             // another without a token
	busy                  // like overShare, but with a request in flight
	dominant              // of a token with more than half of all slots
	withToken             // of another token
)

// candidate is a connection that may be evicted.
type candidate struct {
	*conn
	rank   rank
	state  state
	owner  *owner // when it was found: the connection's goroutine may set another
	closes bool   // it has waited long enough to be closed at once; otherwise it is marked
	peers  int    // connections of its owner
}

// compare orders candidates by rank, then by the number of connections of their owner, the most first. After that,
// candidates that can be closed at once come first, in the order of the longest wait. The others follow, beginning with
// the most recent request.
func (c candidate) compare(d candidate) int {
	ranks := cmp.Or(cmp.Compare(c.rank, d.rank), cmp.Compare(d.peers, c.peers))
	switch {
	case ranks != 0:
		return ranks
	case c.closes && d.closes:
		return cmp.Compare(c.state.since(), d.state.since())
	case c.closes:
		return -1
	case d.closes:
		return 1
	}
	return cmp.Compare(d.state.since(), c.state.since())
}

// evict frees slots in favour of a connection from an address. It closes connections that wait for their client, or, if
// mark is set, marks one. It reports whether it freed a slot. The caller holds admitting.
func (l *Listener) evict(now time.Time, arriving netip.Addr, mark bool) bool {
	candidates, a := l.candidates(now, arriving)
	if candidates == nil {
		return false
	}
	slices.SortFunc(candidates, candidate.compare)
	freed := l.evictFirst(candidates, a, mark, false)
	if freed == 0 {
		freed = l.evictFirst(candidates, a, mark, true)
	}
	if freed == 0 {
		l.failed, l.failedUntil = a, now.Add(evictInterval)
		return false
	}
	l.overloaded.set(now.Sub(l.start))
	return true
}

// evictFirst evicts the first candidate. Of the rank anonymous it closes several, because each search takes time; of
// another rank only one, because whoever comes next would take the slots of the others. It skips connections with
// unread bytes, unless force is set and their rank is overShare.
func (l *Listener) evictFirst(candidates []candidate, a arrival, mark, force bool) (freed int) {
	for i, c := range candidates {
		if freed > l.cfg.Max/64 || freed > 0 && (c.rank > candidates[i-1].rank || c.rank != anonymous) {
			break
		}
		switch {
		case c.rank == overShare && !a.isSmallerThan(c.owner): // others of its address have just been closed
			continue
		case c.closes && !c.conn.evict(c.state, force && c.rank == overShare):
			continue
		case !c.closes && !(mark && l.mark(c.conn)):
			continue
		}
		l.counters.evicted[c.rank].Add(1)
		if freed++; c.rank <= anonymous && c.peers > 1 && c.address.IsValid() {
			l.report.evicted++
			l.report.from = c.address
		}
		if c.rank == dominant {
			l.lastShed = a.now
		}
	}
	return freed
}

// arrival is what determines which connections may be evicted in favour of an arriving one.
type arrival struct {
	now    time.Duration // since Listener.start
	total  int           // connections of its address, with and without a token
	margin int           // how many more an address must have to be larger: every handshake of TLS costs much
	greedy bool          // its address has its share of connections without a token, or more
	equals bool          // it may replace only connections of addresses with as many
	shed   bool          // a token with more than half of all slots may lose one
	token  *owner        // that token, or nil
	spare  bool          // clients without a token have so few slots that connections of tokens may be evicted
}

// isSmallerThan reports whether o is an address that has more connections without a token than the arriving address has
// in all, even after one of them is closed.
func (a arrival) isSmallerThan(o *owner) bool {
	return o.key.address.IsValid() && int(o.conns.Load()) >= a.total+a.margin
}

// candidates returns the connections that may be evicted in favour of an address. It returns nil without a search if
// one has just failed for an address with as many connections or fewer. It also closes marked connections that have
// waited for their client for shortWait: they have no slot.
func (l *Listener) candidates(now time.Time, arriving netip.Addr) (all []candidate, a arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.now, a.total, a.margin = now.Sub(l.start), l.owners.byAddress[arriving], max(2, l.cfg.Max/128)
	a.greedy = l.owners.count(ownerKey{address: arriving}) >= l.cfg.PerAddress && arriving.IsValid()
	if now.Before(l.failedUntil) && a.total >= l.failed.total && (a.greedy || !l.failed.greedy) {
		return nil, a
	}
	a.shed = a.total < l.cfg.PerAddress || l.Owners() > 1 && a.now-l.lastShed >= shedInterval
	a.spare = l.owners.anonymous <= defaultShare(l.cfg.Max)
	for _, o := range l.owners.all {
		if !o.isAnonymous() && l.hasMost(o) {
			a.token = o
		}
	}
	a.equals = a.greedy || a.token != nil && a.total >= l.cfg.PerAddress // which may be the address of that token
	all = []candidate{}
	for c := range l.conns {
		s := state(c.state.Load())
		if c.closing.Load() {
			if s.phase().waitsForClient() && s.overdue(a.now, shortWait) {
				go c.evict(s, false)
			}
			continue
		}
		found := candidate{conn: c, state: s, owner: c.owner, peers: int(c.owner.conns.Load())}
		wait, ok := time.Duration(0), false
		if c.owner.isAnonymous() {
			found.rank, wait, ok = a.rankAnonymous(c, s.phase(), l.owners.byAddress[c.address])
		} else {
			found.rank, wait, ok = a.rankToken(c, s.phase())
		}
		found.closes = s.phase().waitsForClient() && s.overdue(a.now, wait)
		if ok && (found.closes || found.rank == busy || found.rank == dominant) {
			all = append(all, found)
		}
	}
	return all, a
}

// rankAnonymous ranks a connection without a token, whose address has total connections. wait is how long it must have
// waited for its client to be closed at once. ok is false if it may not be evicted.
func (a arrival) rankAnonymous(c *conn, p phase, total int) (r rank, wait time.Duration, ok bool) {
	smaller := a.isSmallerThan(c.owner)
	switch {
	case !p.waitsForClient():
		return busy, 0, smaller
	case smaller:
		return overShare, 0, true
	case a.equals:
		return anonymous, greedyWait, c.address.IsValid() && total >= a.total
	default:
		return anonymous, shortWait, true
	}
}

// rankToken is rankAnonymous for a connection with a token. While one token has more than half of all slots, the
// connections of other tokens may not be evicted.
func (a arrival) rankToken(c *conn, p phase) (r rank, wait time.Duration, ok bool) {
	switch {
	case c.owner == a.token && a.shed && p.isReceiving():
		return dominant, maxWait(p), true
	case c.owner == a.token && a.shed:
		return dominant, shortWait, true
	default:
		return withToken, maxWait(p), (a.token == nil || c.owner == a.token) && !a.greedy && a.spare
	}
}

// mark frees the slot of a connection, and makes its next response the last. It reports false if the connection has
// closed, or too many others are marked.
func (l *Listener) mark(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.conns[c]; !open || l.marked >= l.maxMarked || !c.closing.CompareAndSwap(false, true) {
		return false
	}
	l.marked++
	l.count.Add(-1)
	return true
}
