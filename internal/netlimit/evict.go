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
	greedy := l.hasShare(arriving)
	after := &l.evictAfter
	if greedy {
		after = &l.evictGreedyAfter
	}
	if now.Before(*after) {
		return false
	}
	candidates, most := l.candidates(now, arriving, greedy)
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.state.since(), b.state.since()))
	})
	evicted := l.evictFirst(candidates, most, false)
	if evicted == 0 && !greedy {
		evicted = l.evictFirst(candidates, most, true)
	}
	if evicted == 0 {
		*after = now.Add(evictInterval)
		return false
	}
	l.overloaded.set(now.Sub(l.start))
	return true
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

// candidates returns the connections that may be evicted in favour of one of the given owner, and how many at most.
// An address that has more than its share, including the connection that has arrived, loses those that have waited
// longest, however short. Otherwise only connections whose wait has exceeded the time-out of their phase are evicted,
// and none in favour of an address that has its share. Connections with a token are evicted only while those without
// one are no more than one share, so that clients without a token cannot evict them.
func (l *Listener) candidates(now time.Time, arriving ownerKey, greedy bool) (all []candidate, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	share, elapsed := l.cfg.PerAddress, now.Sub(l.start)
	over, largest := 0, l.owners.largest()
	if largest != nil {
		over = int(largest.conns.Load()) - share
		if largest.key == arriving {
			over++
		}
	}
	pressure := l.refusing.isSet()
	for c := range l.conns {
		s := state(c.state.Load())
		switch {
		case !s.phase().waitsForClient():
		case over > 0 && c.owner == largest:
			if !greedy || s.overdue(elapsed, greedyWait) {
				all = append(all, candidate{c, s, overShare, largest.key.address})
			}
		case greedy:
		case c.owner.isAnonymous():
			if s.overdue(elapsed, anonymousPatience(s.phase(), pressure)) {
				all = append(all, candidate{conn: c, state: s, rank: anonymous})
			}
		case l.owners.anonymous <= share && s.overdue(elapsed, patience(s.phase())):
			all = append(all, candidate{conn: c, state: s, rank: withToken})
		}
	}
	most = l.cfg.Max/64 + 1
	if over > 0 {
		most = min(most, over)
	}
	return all, most
}
