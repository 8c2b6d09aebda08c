package token

import (
	"context"
	"net/netip"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/share"
)

// unknownLimiter limits lookups of credentials that are not in the cache. Few run at once and few wait, and an address
// that has sent too many wrong credentials is refused without a lookup.
type unknownLimiter struct {
	failures *rate.Table[netip.Addr]
	waiting  share.Waiters[netip.Addr] // lookups in flight or waiting for a slot
	slots    chan struct{}             // of lookups in flight
}

const (
	maxUnknownLookups = 2      // at once
	maxWaiting        = 128    // of different credentials, in flight or waiting
	maxWaitingFrom    = 64     // of these, from one address: after a restart, no token behind it is cached
	maxAddresses      = 10_000 // with failures; about 1 MiB
)

// failureLimit is generous: a credential cannot be guessed, and concurrent lookups are limited anyway.
var failureLimit = rate.Limit{Count: 10, Per: time.Second, Burst: 100}

func newUnknownLimiter() *unknownLimiter {
	return &unknownLimiter{
		failures: rate.NewTable[netip.Addr](maxAddresses, time.Now),
		waiting:  share.Waiters[netip.Addr]{PerOwner: maxWaitingFrom, Total: maxWaiting},
		slots:    make(chan struct{}, maxUnknownLookups),
	}
}

// check returns nil, or a rate.Exceeded with ErrFailures if the address has sent too many wrong credentials.
func (l *unknownLimiter) check(from netip.Addr) error {
	if limit := l.failures.Look(from, failureLimit); !limit.OK {
		return &rate.Exceeded{Why: ErrFailures, Wait: limit.Wait}
	}
	return nil
}

// acquire waits until another lookup may run, unless too many wait, and checks the address again: other credentials
// from it may have failed meanwhile. If err is nil, the caller must call release.
func (l *unknownLimiter) acquire(ctx context.Context, from netip.Addr) (release func(), err error) {
	leave, ok := l.waiting.Enter(from)
	if !ok {
		return nil, &rate.Exceeded{Why: ErrLookups, Wait: time.Second}
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	release = func() { <-l.slots; leave() }
	if err := l.check(from); err != nil {
		release()
		return nil, err
	}
	return release, nil
}
