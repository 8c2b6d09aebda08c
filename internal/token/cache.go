package token

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

const (
	freshFor      = time.Second     // a revocation by any process takes effect within two seconds
	lookupTimeout = 5 * time.Second // of a lookup, and of the wait for one
	maxCached     = 10_000          // entries; beyond that a random one is dropped, which costs it a lookup
)

// cache keeps the tokens that were looked up. It looks up a hash once at a time, however many requests wait for it.
//
// An entry is used for freshFor. A stale one is kept, so that its credential is still known, and looked up again by
// the next request. Only hashes that exist, or are being looked up, have an entry.
type cache struct {
	lookup   Lookup
	verifier Verifier // nil: JWTs are not accepted
	now      func() time.Time

	mu      sync.RWMutex
	entries map[Hash]*entry
	used    map[Hash]time.Time // since RecordUses last took them
}

type entry struct {
	started time.Time     // when the lookup started
	done    chan struct{} // closed when token and err are set
	token   Token
	err     error
}

func newCache(lookup Lookup, now func() time.Time) *cache {
	return &cache{lookup: lookup, now: now, entries: map[Hash]*entry{}, used: map[Hash]time.Time{}}
}

// entry returns the entry of a hash, fresh or stale, or nil.
func (c *cache) entry(hash Hash) *entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.entries[hash]
}

// token returns the token of a credential as of at most freshFor ago. The start of a lookup counts, because it may miss
// what has changed since then. A stale entry may still be loading: then the database is slow, and is not asked again
// before it has responded.
func (c *cache) token(ctx context.Context, credential string, hash Hash, acquire acquireFunc) (*Token, error) {
	for oldest := c.now().Add(-freshFor); ; {
		e := c.entry(hash)
		if e == nil || e.started.Before(oldest) && e.isDone() {
			e = c.lookUp(ctx, credential, hash, oldest, acquire)
		}
		if t, err := e.wait(ctx); err != nil || !e.started.Before(oldest) {
			return t, err
		}
	}
}

// acquireFunc waits until a lookup may start.
type acquireFunc func(context.Context) (release func(), err error)

// lookUp returns a new entry of a hash once its lookup has ended, or the present one if another request has started a
// lookup meanwhile. The lookup starts when acquire, which may be nil, returns. Others wait for the entry meanwhile.
func (c *cache) lookUp(
	ctx context.Context, credential string, hash Hash, oldest time.Time, acquire acquireFunc,
) *entry {
	c.mu.Lock()
	previous := c.entries[hash]
	if previous != nil && !(previous.isDone() && previous.started.Before(oldest)) {
		c.mu.Unlock()
		return previous
	}
	for other := range c.entries {
		if len(c.entries) < maxCached {
			break
		}
		delete(c.entries, other)
	}
	e := &entry{started: c.now(), done: make(chan struct{})}
	c.entries[hash] = e
	c.mu.Unlock()

	// Other requests wait for this lookup too, so it continues when the request that started it ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	e.err = errors.New("the lookup panicked")
	defer func() {
		if e.err != nil {
			c.discard(hash, e, previous)
		}
		close(e.done)
	}()
	if acquire != nil {
		release, err := acquire(ctx)
		if err != nil {
			e.err = err
			return e
		}
		defer release()
	}
	if c.accepts(credential) {
		e.token, e.err = c.verifier.Verify(credential)
	} else if e.token, e.err = c.lookup.TokenByHash(ctx, hash); e.err == nil {
		c.recordUse(&e.token, e.started)
	}
	return e
}

// maxJWT is the length of the longest JWT that is verified.
const maxJWT = 8 << 10

// accepts reports whether a credential is a JWT, and these are accepted.
func (c *cache) accepts(jwt string) bool {
	return c.verifier != nil && strings.HasPrefix(jwt, "eyJ") && len(jwt) <= maxJWT && strings.Count(jwt, ".") == 2
}

// isWrong reports whether an error of a lookup is about the credential.
func isWrong(err error) bool { return errors.Is(err, ErrUnknown) || errors.Is(err, ErrRejected) }

// discard removes an entry whose lookup failed, so that the next request looks up again. An error of the database
// does not concern the token: then the previous entry, if any, stays, and the credential is still known.
func (c *cache) discard(hash Hash, e, previous *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.entries[hash] != e:
	case previous != nil && !isWrong(e.err):
		c.entries[hash] = previous
	default:
		delete(c.entries, hash)
	}
}

func (e *entry) wait(ctx context.Context) (*Token, error) {
	if e.isDone() { // even if ctx has ended
		return &e.token, e.err
	}
	select {
	case <-e.done:
		return &e.token, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *entry) isDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}
