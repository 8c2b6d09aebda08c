package token

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"
	"sync"
	"time"

	"plantstore/internal/rate"
)

// The ways in which a credential fails. Each is told to the client as it is: only somebody
// who holds a credential learns more about it than that it is not good.
var (
	ErrMissing   = errors.New("no credential: send the header Authorization: Bearer <ACCESS_TOKEN>")
	ErrMalformed = errors.New("the Authorization header is not one of the form Bearer <ACCESS_TOKEN>")
	ErrMistyped  = errors.New("the credential is not a token of this service: a character is wrong or missing")
	ErrInvalid   = errors.New("the credential is not known to this service")
	ErrExpired   = errors.New("the credential has expired")
	ErrRevoked   = errors.New("the credential was revoked")
	ErrScope     = errors.New("the credential does not have the scope that this needs")

	// ErrFailures comes in a *rate.Exceeded.
	ErrFailures = errors.New("too many credentials from this address were not good, and this one is not known")
)

// Lookup finds tokens by the hash of their credential. It returns ErrUnknown when there is none.
type Lookup interface {
	TokenByHash(ctx context.Context, hash Hash) (Token, error)
}

// Source is where a request comes from. It is asked only where that matters.
type Source interface {
	Address() netip.Addr
}

// Authenticator turns the Authorization header into a Token.
//
// What it found it believes for at most freshFor, so a revocation by any process holds
// everywhere within two seconds while a busy client costs one look-up a second.
//
// Credentials that it does not know can't slow down those that it does: few are looked up at once, and an
// address from which too many were not good is told to come again: see meet and admit.
type Authenticator struct {
	lookup   Lookup
	fixed    *Token
	now      func() time.Time
	failures *rate.Table[netip.Addr]
	seed     maphash.Seed
	strange  chan struct{} // holds an element for each credential that is being met

	mu    sync.RWMutex
	known map[Hash]*entry // of tokens that are there, fresh or not, and of look-ups under way
}

type entry struct {
	loaded time.Time // when the look-up began
	token  Token
	err    error
	done   chan struct{} // closed when the look-up has ended
}

const (
	freshFor      = time.Second
	lookupTimeout = 5 * time.Second
	maxKnown      = 10_000 // entries; past it any one is forgotten, which costs it a look-up
	maxStrange    = 2      // look-ups at once of what is not known
	maxAddresses  = 10_000 // whose failures are counted; about 1 MiB

	// When a credential that is not known may be tried although its address has failed too often.
	turns     = 30
	turnLasts = 2 * time.Second
)

// failureLimit is generous: a credential can't be guessed, and what each costs is bounded otherwise.
var failureLimit = rate.Limit{Count: 10, Per: time.Second, Burst: 100}

// NewAuthenticator authenticates against lookup and, where fixed is not nil, one token
// that is not in the database.
func NewAuthenticator(lookup Lookup, fixed *Token, now func() time.Time) *Authenticator {
	return &Authenticator{
		lookup: lookup, fixed: fixed, now: now, failures: rate.NewTable[netip.Addr](maxAddresses, now),
		seed: maphash.MakeSeed(), strange: make(chan struct{}, maxStrange), known: map[Hash]*entry{},
	}
}

// Authenticate returns the token of a request's Authorization header lines, which others share, or one of the
// errors above, or the error of the look-up.
func (a *Authenticator) Authenticate(ctx context.Context, headers []string, from Source) (*Token, error) {
	credential, err := bearer(headers)
	if err != nil {
		return nil, err
	}
	hash := HashOf(credential)
	if a.fixed != nil && a.fixed.Hash == hash {
		return a.fixed, nil
	}
	var t *Token
	switch e := a.remembered(hash); {
	case e == nil:
		t, err = a.meet(ctx, credential, hash, from)
	case a.isOld(e):
		t, err = a.renew(ctx, hash, e)
	default:
		t, err = e.wait(ctx)
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return nil, ErrInvalid
	case errors.Is(err, ErrMistyped) || errors.Is(err, ErrFailures):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("look up the credential: %w", err)
	case !t.Revoked.IsZero():
		return nil, ErrRevoked
	case !t.Expires.IsZero() && !a.now().Before(t.Expires):
		return nil, ErrExpired
	}
	return t, nil
}

// meet looks up a credential that is not known, when it is its turn, and counts it where it is not good.
func (a *Authenticator) meet(ctx context.Context, credential string, hash Hash, from Source) (*Token, error) {
	address := network(from)
	if err := a.admit(credential, hash, address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	select {
	case a.strange <- struct{}{}:
		defer func() { <-a.strange }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.remembered(hash) == nil { // others of the address may have failed meanwhile
		if err := a.admit(credential, hash, address); err != nil {
			return nil, err
		}
	}
	t, err := a.load(ctx, hash).wait(ctx)
	if errors.Is(err, ErrUnknown) {
		a.failures.Take(address, failureLimit)
	}
	return t, err
}

// admit says whether a credential that is not known may be looked up. An address that has failed too often
// is answered without a look-up, but not for ever: others may come from it, through the same proxy or router,
// who are right. So every credential has its turn once a minute, and is told when. Which turn that is
// can't be chosen: whoever tries many gets few of them looked up.
func (a *Authenticator) admit(credential string, hash Hash, address netip.Addr) error {
	s := a.failures.Look(address, failureLimit)
	wellFormed := WellFormed(credential)
	if !s.OK && wellFormed {
		if s.Wait = a.untilTurn(hash); s.Wait == 0 {
			return nil
		}
	}
	switch {
	case !s.OK:
		return &rate.Exceeded{Why: ErrFailures, Wait: s.Wait}
	case !wellFormed:
		a.failures.Take(address, failureLimit)
		return ErrMistyped
	}
	return nil
}

// untilTurn is how long it takes until it is the turn of a hash, 0 while it is.
func (a *Authenticator) untilTurn(hash Hash) time.Duration {
	const cycle = turns * turnLasts
	begins := time.Duration(maphash.Comparable(a.seed, hash)%turns) * turnLasts
	since := (time.Duration(a.now().UnixNano()) - begins) % cycle
	if since < turnLasts {
		return 0
	}
	return cycle - since
}

// network is what failures are counted by: of IPv6, where everybody has many addresses, the first half.
func network(from Source) netip.Addr {
	address := from.Address().Unmap()
	if address.Is6() {
		first, _ := address.Prefix(64)
		return first.Addr()
	}
	return address
}

// remembered is what is known of a hash, fresh or not, or being looked up.
func (a *Authenticator) remembered(hash Hash) *entry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.known[hash]
}

func (e *entry) wait(ctx context.Context) (*Token, error) {
	select {
	case <-e.done:
		return &e.token, e.err
	default:
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

// isOld reports whether a look-up began too long ago to be believed by a request that comes now, also where it
// is still under way.
func (a *Authenticator) isOld(e *entry) bool { return a.now().Sub(e.loaded) > freshFor }

// renew looks a hash up of which what is known is old. Where that is under way it is waited for: a database that is
// slow is not asked the same twice at once.
func (a *Authenticator) renew(ctx context.Context, hash Hash, e *entry) (*Token, error) {
	if t, err := e.wait(ctx); err != nil {
		return t, err
	}
	return a.load(ctx, hash).wait(ctx)
}

// load looks a hash up, unless somebody has begun to.
func (a *Authenticator) load(ctx context.Context, hash Hash) *entry {
	a.mu.Lock()
	was := a.known[hash]
	if was != nil && !(was.isDone() && a.isOld(was)) {
		a.mu.Unlock()
		return was
	}
	for other := range a.known {
		if len(a.known) < maxKnown {
			break
		}
		delete(a.known, other)
	}
	// Its age counts from before it was asked: it may not have seen what happened since.
	e := &entry{loaded: a.now(), done: make(chan struct{})}
	a.known[hash] = e
	a.mu.Unlock()

	// The look-up serves others too, so it outlives the request that began it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	e.err = errors.New("the look-up panicked")
	defer func() {
		if e.err != nil { // the next one asks again
			a.mu.Lock()
			switch {
			case a.known[hash] != e:
			case was != nil && !errors.Is(e.err, ErrUnknown):
				a.known[hash] = was // the database failed, which tells nothing of the token
			default:
				delete(a.known, hash)
			}
			a.mu.Unlock()
		}
		close(e.done)
	}()
	e.token, e.err = a.lookup.TokenByHash(ctx, hash)
	return e
}

// bearer takes the credential out of the header: one header, the scheme in any case,
// and the characters that RFC 6750 gives a token.
func bearer(headers []string) (string, error) {
	if len(headers) == 0 {
		return "", ErrMissing
	}
	if len(headers) > 1 {
		return "", ErrMalformed
	}
	scheme, credential, ok := strings.Cut(headers[0], " ")
	credential = strings.Trim(credential, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || !IsBearer(credential) {
		return "", ErrMalformed
	}
	return credential, nil
}

// IsBearer reports whether text can be sent as a bearer credential (RFC 6750, b64token).
func IsBearer(text string) bool {
	text = strings.TrimRight(text, "=")
	for i := range len(text) {
		if !bearerCharacters[text[i]] {
			return false
		}
	}
	return len(text) > 0
}

var bearerCharacters = func() (is [256]bool) {
	for _, c := range []byte(base62 + "-._~+/") {
		is[c] = true
	}
	return is
}()
