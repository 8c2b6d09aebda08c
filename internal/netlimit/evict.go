package netlimit

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

const (
	evictInterval = 10 * time.Millisecond // between searches that found no connection to evict: each visits all

	// An address that has its share replaces only connections that have waited for so long. Otherwise the many clients
	// of one address would evict each other while their requests are on the way.
	greedyWait = 20 * time.Millisecond
)

// candidate is a connection that may be evicted.
type candidate struct {
	*conn
	state   state
	rank    int // those of a lower rank are evicted first
	address netip.Addr
}

// evict closes connections that wait for their client in favour of a connection of the given owner: the longest wait
// first, and several at a time because the search is not free. The caller holds admitting.
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
	most := l.cfg.Max/64 + 1
	if b.over > 0 {
		most = min(most, b.over)
	}
	evicted := l.evictFirst(candidates, most, false)
	if evicted == 0 && !b.greedy {
		evicted = l.evictFirst(candidates, most, true)
	}
	if evicted == 0 {
		*after = now.Add(evictInterval)
		return false
	}
	l.overloaded.set(now.Sub(l.start))
	return true
}

// balance compares the address of a connection that has arrived with the one that has the most connections whose
// clients have not shown a token.
type balance struct {
	largest *owner // nil if there is none
	over    int    // how many connections that is to lose
	greedy  bool   // the address has its share or more
}

// balance: an address is to lose what exceeds its share, including the connection that has arrived. Where many
// addresses fill all slots with less than that, it is to lose what exceeds twice what the other has then.
func (l *Listener) balance(arriving ownerKey) (b balance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := l.owners.count(arriving)
	b.greedy = arriving.address.IsValid() && count >= l.cfg.PerAddress
	if b.largest = l.owners.largest(); b.largest != nil {
		b.over = int(b.largest.conns.Load()) - min(l.cfg.PerAddress, 2*(count+1))
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

// evictFirst evicts the first candidates, all of one rank, at most most. One that has sent something that was not read
// yet is skipped, unless force is set and its address has more than its share.
func (l *Listener) evictFirst(candidates []candidate, most int, force bool) (evicted int) {
	for i, c := range candidates {
		if evicted >= most || evicted > 0 && c.rank > candidates[i-1].rank {
			break
		}
		if !c.conn.evict(c.state, force && c.rank == overShare) {
			continue
		}
		if evicted++; c.rank == overShare {
			l.report.evicted++
			l.report.from = c.address
		}
	}
	return evicted
}

const (
	overShare = iota // its address has more than its share, and more than any other
	anonymous        // its client has not shown a token
	withToken        // its client has
)

// candidates returns the connections that may be evicted. Those of an address that is to lose some may have waited for
// a moment only. Others are evicted only if their wait has exceeded the time-out of their phase, and not in favour of
// an address that has its share. Connections with a token are evicted only while those without one are no more than one
// share, so that clients without a token cannot evict them.
func (l *Listener) candidates(now time.Time, b balance) (all []candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	elapsed, pressure := now.Sub(l.start), l.refusing.isSet()
	for c := range l.conns {
		s := state(c.state.Load())
		switch {
		case !s.phase().waitsForClient():
		case b.over > 0 && c.owner == b.largest:
			if !b.greedy || s.overdue(elapsed, greedyWait) {
				all = append(all, candidate{c, s, overShare, b.largest.key.address})
			}
		case b.greedy:
		case c.owner.isAnonymous():
			if s.overdue(elapsed, anonymousPatience(s.phase(), pressure)) {
				all = append(all, candidate{conn: c, state: s, rank: anonymous})
			}
		case l.owners.anonymous <= l.cfg.PerAddress && s.overdue(elapsed, patience(s.phase())):
			all = append(all, candidate{conn: c, state: s, rank: withToken})
		}
	}
	return all
}
