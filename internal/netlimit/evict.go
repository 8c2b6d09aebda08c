package netlimit

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

const (
	evictInterval = 10 * time.Millisecond // after a search without a result, because each visits all connections

	// A connection from an address that has its share replaces only connections that have waited for greedyWait.
	// Otherwise many clients of one address would evict each other while their requests are in transit.
	greedyWait = 20 * time.Millisecond
)

// candidate is a connection that may be evicted.
type candidate struct {
	*conn
	state   state
	rank    int // those of a lower rank are evicted first
	address netip.Addr
}

// evict closes connections that wait for their client in favour of a connection of the given owner: those that have
// waited longest first, and several at a time, because each search takes time. The caller holds admitting.
func (l *Listener) evict(now time.Time, arriving ownerKey) bool {
	b := l.balance(arriving)
	after := &l.evictAfter[b.kind()]
	if now.Before(*after) {
		return false
	}
	candidates := l.candidates(now, b)
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.state.since(), b.state.since()))
	})
	limit := l.cfg.Max/64 + 1
	if b.over > 0 {
		limit = min(limit, b.over)
	}
	evicted := l.evictFirst(candidates, limit, false)
	if evicted == 0 && !b.greedy {
		evicted = l.evictFirst(candidates, limit, true)
	}
	if evicted == 0 {
		*after = now.Add(evictInterval)
		return false
	}
	l.overloaded.set(now.Sub(l.start))
	return true
}

// balance compares the address of an arriving connection, and all tokens, with those that have the most connections.
type balance struct {
	largest *owner // the address that has the most without a token; nil if there is none
	over    int    // how many connections largest is to lose, if positive
	greedy  bool   // the address of the arriving connection has its share or more
	token   *owner // the token that has more than half of all slots while others have some; nil if there is none
}

// balance returns the balance for an arriving connection. The largest address is to lose the connections beyond its
// share, including the arriving one.
func (l *Listener) balance(arriving ownerKey) (b balance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.greedy = arriving.address.IsValid() && l.owners.count(arriving) >= l.cfg.PerAddress
	for _, o := range l.owners.all {
		switch n := o.conns.Load(); {
		case !o.isAnonymous():
			if l.hasMost(o) && l.Owners() > 1 {
				b.token = o
			}
		case o.key.address.IsValid() && (b.largest == nil || n > b.largest.conns.Load()):
			b.largest = o
		}
	}
	if b.largest != nil {
		b.over = int(b.largest.conns.Load()) - l.cfg.PerAddress
		if b.largest.key == arriving {
			b.over++
		}
	}
	return b
}

// kind distinguishes searches that fail for different reasons.
func (b balance) kind() int {
	switch {
	case b.greedy:
		return 0
	case b.over > 0:
		return 1
	default:
		return 2
	}
}

// evictFirst evicts the first candidates, up to limit and all of one rank. One with unread bytes is skipped, unless
// force is set and it is one of the address that has the most.
func (l *Listener) evictFirst(candidates []candidate, limit int, force bool) (evicted int) {
	for i, c := range candidates {
		if evicted >= limit || evicted > 0 && c.rank > candidates[i-1].rank {
			break
		}
		if !c.conn.evict(c.state, force && c.rank == overShare) {
			continue
		}
		l.counters.evicted[c.rank].Add(1)
		if evicted++; c.rank == overShare {
			l.report.evicted++
			l.report.from = c.address
		}
	}
	return evicted
}

const (
	overShare = iota // of balance.largest, which is to lose some
	anonymous        // another without a token
	withToken        // the client has presented a token
)

// candidates returns the connections that may be evicted. Those of an address that is to lose some qualify however
// short their wait, or after greedyWait in favour of an address that has its share, which replaces no others. Others
// without a token qualify after shortWait. Those with a token qualify after the maxWait of their phase, and only while
// those without one have no more than a default share: clients without a token can't take more slots than that from
// them. If one token has more than half of all slots, only its connections qualify, after shortWait.
func (l *Listener) candidates(now time.Time, b balance) (all []candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	elapsed := now.Sub(l.start)
	for c := range l.conns {
		s, found := state(c.state.Load()), candidate{conn: c, rank: anonymous}
		wait := shortWait
		switch {
		case !s.phase().waitsForClient():
			continue
		case b.over > 0 && c.owner == b.largest:
			found.rank, found.address, wait = overShare, b.largest.key.address, 0
			if b.greedy {
				wait = greedyWait
			}
		case b.greedy:
			continue
		case c.owner.isAnonymous():
		case l.owners.anonymous > defaultShare(l.cfg.Max), b.token != nil && c.owner != b.token:
			continue
		default:
			if found.rank = withToken; b.token == nil {
				wait = maxWait(s.phase())
			}
		}
		if found.state = s; s.overdue(elapsed, wait) {
			all = append(all, found)
		}
	}
	return all
}
