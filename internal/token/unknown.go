package token

import (
	"context"
	"hash/maphash"
	"net/netip"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/share"
)

// unknownLimiter limits lookups of credentials that are not in the cache. Few run at once and few wait, and an address
// that has sent too many wrong credentials is refused without a lookup, except in the retry slot of a credential.
//
// Without the slots, a valid token that is not cached would compete with the wrong ones of its address, for example
// behind the same proxy. A client that follows Retry-After might then be refused for minutes. With the slots, it is
// admitted within a minute.
type unknownLimiter struct {
	now      func() time.Time
	failures *rate.Table[netip.Addr]
	seed     maphash.Seed
	waiting  share.Waiters[netip.Addr] // lookups in flight or waiting for a slot
	slots    chan struct{}             // of lookups in flight
}

const (
	maxUnknownLookups = 2      // at once
	maxWaiting        = 128    // of different credentials, in flight or waiting
	maxWaitingFrom    = 64     // of these, from one address: after a restart, no token behind it is cached
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
		slots:   make(chan struct{}, maxUnknownLookups),
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

// acquire waits until another lookup may run, and checks the credential again: others from its address may have failed
// meanwhile. If err is nil, the caller must call release.
func (l *unknownLimiter) acquire(
	ctx context.Context, wellFormed bool, hash Hash, from netip.Addr,
) (release func(), err error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release = func() { <-l.slots }
	if err := l.check(wellFormed, hash, from); err != nil {
		release()
		return nil, err
	}
	return release, nil
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
