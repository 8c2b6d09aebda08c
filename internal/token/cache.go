package token

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	freshFor      = time.Second     // a revocation by any process takes effect within two seconds
	lookupTimeout = 5 * time.Second // of a lookup, and of the wait for one
	maxCached     = 10_000          // entries; beyond that a random one is dropped, which costs it a lookup
)

// cache keeps the tokens that were looked up. It looks up a hash once at a time, however many requests wait for it.
//
// An entry is used for freshFor. A stale one is kept, so that its credential is still known, and looked up again by
// the next request. Only hashes that exist have an entry.
type cache struct {
	lookups singleflight.Group

	mu      sync.RWMutex
	entries map[Hash]*entry
	used    map[Hash]time.Time // since RecordUses last took them
}

type entry struct {
	started time.Time // when the lookup started
	token   Token
}

func newCache() *cache {
	return &cache{entries: map[Hash]*entry{}, used: map[Hash]time.Time{}}
}

// entry returns the entry of a hash, fresh or stale, or nil.
func (c *cache) entry(hash Hash) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[hash]
}

// isFresh reports whether there is an entry that was looked up at most freshFor ago.
func (e *entry) isFresh() bool { return e != nil && !e.started.Before(time.Now().Add(-freshFor)) }

// find looks up a hash, or waits for a lookup that started at most freshFor ago: an earlier one may miss what has
// changed since then. If the database is slow, it is not asked again before it has responded.
func (c *cache) find(ctx context.Context, hash Hash, lookUp lookUpFunc) (*entry, error) {
	oldest := time.Now().Add(-freshFor)
	for {
		// Other requests may wait for this lookup too, so it continues when the request that started it ends.
		lookup := c.lookups.DoChan(string(hash[:]), func() (any, error) {
			return c.renew(context.WithoutCancel(ctx), hash, lookUp)
		})
		select {
		case done := <-lookup:
			if e := done.Val.(*entry); done.Err != nil || !e.started.Before(oldest) {
				return e, done.Err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookUpFunc asks the database or the identity provider.
type lookUpFunc func(context.Context) (Token, error)

// renew looks up a hash and stores its entry. If the error says that the credential is wrong, the entry is removed. Any
// other error does not concern the token: then the entry, if any, stays, and the credential is still known.
func (c *cache) renew(ctx context.Context, hash Hash, lookUp lookUpFunc) (e *entry, err error) {
	e = &entry{started: time.Now()}
	defer func() {
		if reason := recover(); reason != nil { // it would end the process: see singleflight
			err = fmt.Errorf("the lookup panicked: %v\n%s", reason, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	e.token, err = lookUp(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case isWrong(err):
		delete(c.entries, hash)
	case err == nil:
		for other := range c.entries {
			if len(c.entries) < maxCached || c.entries[hash] != nil {
				break
			}
			delete(c.entries, other)
		}
		c.entries[hash] = e
	}
	return e, err
}

// isWrong reports whether an error of a lookup is about the credential.
func isWrong(err error) bool { return errors.Is(err, ErrUnknown) || errors.Is(err, ErrRejected) }
