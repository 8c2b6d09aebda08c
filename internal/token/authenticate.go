package token

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
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
)

// Lookup finds tokens by the hash of their credential. It returns ErrUnknown when there is none.
type Lookup interface {
	TokenByHash(ctx context.Context, hash Hash) (Token, error)
}

// Authenticator turns the Authorization header into a Token.
//
// What it found it believes for at most freshFor, so a revocation by any process holds
// everywhere within two seconds while a busy client costs one look-up a second.
type Authenticator struct {
	lookup Lookup
	fixed  *Token
	now    func() time.Time

	mu    sync.RWMutex
	known map[Hash]*entry
}

type entry struct {
	loaded time.Time // zero until the look-up has ended
	token  Token
	err    error
	done   chan struct{} // closed when the look-up has ended
}

const (
	freshFor      = time.Second
	lookupTimeout = 5 * time.Second
	maxKnown      = 10_000 // entries; past it all are forgotten, which costs one look-up each
)

// NewAuthenticator authenticates against lookup and, where fixed is not nil, one token
// that is not in the database.
func NewAuthenticator(lookup Lookup, fixed *Token, now func() time.Time) *Authenticator {
	return &Authenticator{lookup: lookup, fixed: fixed, now: now, known: map[Hash]*entry{}}
}

// Authenticate returns the token of a request's Authorization header lines, or one of the
// errors above, or the error of the look-up.
func (a *Authenticator) Authenticate(ctx context.Context, headers []string) (Token, error) {
	credential, err := bearer(headers)
	if err != nil {
		return Token{}, err
	}
	hash := HashOf(credential)
	if a.fixed != nil && a.fixed.Hash == hash {
		return *a.fixed, nil
	}
	e := a.remembered(hash)
	if e == nil {
		if !WellFormed(credential) {
			return Token{}, ErrMistyped
		}
		e = a.load(ctx, hash)
	}
	t, err := e.wait(ctx)
	switch {
	case errors.Is(err, ErrUnknown):
		return Token{}, ErrInvalid
	case err != nil:
		return Token{}, fmt.Errorf("look up the credential: %w", err)
	case !t.Revoked.IsZero():
		return Token{}, ErrRevoked
	case !t.Expires.IsZero() && !a.now().Before(t.Expires):
		return Token{}, ErrExpired
	}
	return t, nil
}

// remembered is what is known of a hash and still fresh, or being looked up.
func (a *Authenticator) remembered(hash Hash) *entry {
	a.mu.RLock()
	e := a.known[hash]
	a.mu.RUnlock()
	if e == nil || a.stale(e) {
		return nil
	}
	return e
}

func (e *entry) wait(ctx context.Context) (Token, error) {
	select {
	case <-e.done:
		return e.token, e.err
	default:
	}
	select {
	case <-e.done:
		return e.token, e.err
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
}

func (a *Authenticator) stale(e *entry) bool {
	select {
	case <-e.done:
		return a.now().Sub(e.loaded) > freshFor
	default:
		return false
	}
}

// load looks a hash up, unless somebody has begun to.
func (a *Authenticator) load(ctx context.Context, hash Hash) *entry {
	a.mu.Lock()
	if e := a.known[hash]; e != nil && !a.stale(e) {
		a.mu.Unlock()
		return e
	}
	if len(a.known) >= maxKnown {
		clear(a.known)
	}
	e := &entry{done: make(chan struct{})}
	a.known[hash] = e
	a.mu.Unlock()

	// The look-up serves others too, so it outlives the request that began it. Its age
	// counts from before it was asked: it may not have seen what happened since.
	e.loaded = a.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	e.err = errors.New("the look-up panicked")
	defer func() {
		if e.err != nil { // the next one asks again
			a.mu.Lock()
			if a.known[hash] == e {
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
