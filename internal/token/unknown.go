package token

import (
	"context"
	"hash/maphash"
	"net/netip"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/share"
)

// unknownLimiter limits lookups of credentials that are not in the cache. Few run at once, few requests wait for one,
// and an address that has sent too many wrong credentials is refused without a lookup, except in the retry slot of a
// credential.
//
// Without the slots a right token that is not cached would compete for the lookups of its address, for example
// behind the same proxy. While 100 or 1,000 wrong tokens a second came from there, a client that followed
// Retry-After was not admitted within ten minutes in the median of 40 trials; with the slots it was after 25 s in
// the median and 57 s at most.
type unknownLimiter struct {
	now      func() time.Time
	failures *rate.Table[netip.Addr]
	seed     maphash.Seed
	waiting  share.Waiters[netip.Addr]
	lookups  chan struct{} // a semaphore
}

const (
	maxUnknownLookups = 2      // at once
	maxWaiting        = 128    // requests that wait for a lookup
	maxWaitingFrom    = 4      // of these, from one address
	maxAddresses      = 10_000 // with failures; about 1 MiB

	retrySlots = 30
	slotLength = 2 * time.Second
)

// failureLimit is generous: a credential cannot be guessed, and concurrent lookups are limited anyway.
var failureLimit = rate.Limit{Count: 10, Per: time.Second, Burst: 100}

func newUnknownLimiter(now func() time.Time) *unknownLimiter {
	return &unknownLimiter{
		now: now, failures: rate.NewTable[netip.Addr](maxAddresses, now), seed: maphash.MakeSeed(),
		waiting: share.Waiters[netip.Addr]{PerOwner: maxWaitingFrom, Total: maxWaiting},
		lookups: make(chan struct{}, maxUnknownLookups),
	}
}

// check returns nil if a credential may be looked up, ErrMistyped if it cannot be a token, or a rate.Exceeded
// with ErrFailures.
func (l *unknownLimiter) check(wellFormed bool, hash Hash, from netip.Addr) error {
	limit := l.failures.Look(from, failureLimit)
	switch {
	case !limit.OK && !wellFormed:
		return &rate.Exceeded{Why: ErrFailures, Wait: limit.Wait}
	case !limit.OK:
		if wait := l.untilRetrySlot(hash); wait > 0 {
			return &rate.Exceeded{Why: ErrFailures, Wait: wait}
		}
	case !wellFormed:
		l.countFailure(from)
		return ErrMistyped
	}
	return nil
}

func (l *unknownLimiter) countFailure(from netip.Addr) { l.failures.Take(from, failureLimit) }

// acquire waits until another lookup may run. It returns a rate.Exceeded with ErrLookups at once if too many requests
// wait already. Otherwise the caller must call release.
func (l *unknownLimiter) acquire(ctx context.Context, from netip.Addr) (release func(), err error) {
	leave, ok := l.waiting.Enter(from)
	if !ok {
		return nil, &rate.Exceeded{Why: ErrLookups, Wait: time.Second}
	}
	select {
	case l.lookups <- struct{}{}:
		return func() { <-l.lookups; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// untilRetrySlot returns how long it is until the retry slot of a hash, 0 during the slot. Each hash has one slot a
// minute, which a client cannot choose: of many different credentials, one in thirty is looked up.
func (l *unknownLimiter) untilRetrySlot(hash Hash) time.Duration {
	const cycle = retrySlots * slotLength
	start := time.Duration(maphash.Comparable(l.seed, hash)%retrySlots) * slotLength
	since := (time.Duration(l.now().UnixNano()) - start) % cycle
	if since < slotLength {
		return 0
	}
	return cycle - since
}

// network returns what failures are counted by: the address, or for IPv6, where one client has many, its /64.
func network(address netip.Addr) netip.Addr {
	address = address.Unmap()
	if address.Is6() {
		prefix, _ := address.Prefix(64)
		return prefix.Addr()
	}
	return address
}
