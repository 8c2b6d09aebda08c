package token

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"plantstore/internal/share"
)

// Why a request is not authenticated or not authorised. Clients see these messages.
var (
	ErrMissing   = errors.New("the Authorization header is missing: send Authorization: Bearer <ACCESS_TOKEN>")
	ErrMalformed = errors.New("the Authorization header must be sent once and have the form Bearer <ACCESS_TOKEN>")
	ErrMistyped  = errors.New("the token is malformed: a character is wrong or missing")
	ErrInvalid   = errors.New("the token is unknown")
	ErrExpired   = errors.New("the token has expired")
	ErrRevoked   = errors.New("the token has been revoked")
	ErrScope     = errors.New("the token lacks the required scope")
	ErrRejected  = errors.New("the token of the identity provider is invalid") // wrapped in a *Rejected
	ErrKeys      = errors.New("the key of the token is not available from the identity provider; retry later")

	// These are wrapped in a *rate.Exceeded.
	ErrFailures = errors.New("too many requests from this address had a wrong token")
	ErrLookups  = errors.New("too many tokens are being looked up")
)

// Lookup finds tokens by the hash of their credential. It returns ErrUnknown if there is none.
type Lookup interface {
	TokenByHash(ctx context.Context, hash Hash) (Token, error)
}

// Verifier verifies tokens of an identity provider: JWTs.
type Verifier interface {
	// Verify returns the token of a JWT, which may have expired, or ErrKeys or a *Rejected. It does not wait.
	Verify(jwt string) (Token, error)
}

// Rejected is the reason why a token of an identity provider is invalid. The client sees it.
type Rejected struct{ Reason string }

func (e *Rejected) Error() string { return ErrRejected.Error() + ": " + e.Reason }
func (e *Rejected) Unwrap() error { return ErrRejected }

// Source is where a request comes from. Address is called only for unknown credentials.
type Source interface {
	Address() netip.Addr
}

// Authenticator turns the Authorization header into a Token.
//
// It caches tokens, so that a busy client costs one lookup a second (cache.go), and limits lookups of unknown
// credentials, so that they cannot slow down known ones (unknown.go).
type Authenticator struct {
	lookup   Lookup
	verifier Verifier // nil: JWTs are not accepted
	fixed    *Token
	tokens   *cache
	unknown  *unknownLimiter
}

// NewAuthenticator authenticates against lookup and, if they are not nil, verifier and one fixed token.
func NewAuthenticator(lookup Lookup, verifier Verifier, fixed *Token) *Authenticator {
	return &Authenticator{lookup, verifier, fixed, newCache(), newUnknownLimiter()}
}

// Authenticate returns the token of a request's Authorization headers, one of the errors above, or the error of
// the lookup. The caller must not change the token, which other requests share.
func (a *Authenticator) Authenticate(ctx context.Context, headers []string, from Source) (*Token, error) {
	credential, err := bearer(headers)
	if err != nil {
		return nil, err
	}
	hash := HashOf(credential)
	if a.fixed != nil && a.fixed.Hash == hash {
		return a.fixed, nil
	}
	e := a.tokens.entry(hash)
	if !e.isFresh() {
		lookUp := a.lookUp
		if e == nil {
			lookUp = a.lookUpUnknown(share.Network(from.Address()))
		}
		e, err = a.tokens.find(ctx, hash, func(ctx context.Context) (Token, error) { return lookUp(ctx, credential, hash) })
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return nil, ErrInvalid
	case err != nil:
		return nil, err
	}
	if err := e.token.check(time.Now()); err != nil {
		return nil, err
	}
	return &e.token, nil
}

// check returns an error if the token is revoked or has expired.
func (t *Token) check(now time.Time) error {
	switch {
	case !t.Revoked.IsZero():
		return ErrRevoked
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		return ErrExpired
	}
	return nil
}

// lookUpUnknown returns a lookUp for credentials that are not in the cache, within the limits for their address.
func (a *Authenticator) lookUpUnknown(from netip.Addr) func(context.Context, string, Hash) (Token, error) {
	return func(ctx context.Context, credential string, hash Hash) (t Token, err error) {
		if err := a.unknown.check(from); err != nil {
			return t, err
		}
		if err = ErrMistyped; wellFormed(credential) || a.accepts(credential) {
			release, refused := a.unknown.acquire(ctx, from)
			if refused != nil {
				return t, refused
			}
			defer release()
			t, err = a.lookUp(ctx, credential, hash)
		}
		if errors.Is(err, ErrMistyped) || isWrong(err) {
			a.unknown.failures.Take(from, failureLimit)
		}
		return t, err
	}
}

func (a *Authenticator) lookUp(ctx context.Context, credential string, hash Hash) (Token, error) {
	if a.accepts(credential) {
		return a.verifier.Verify(credential)
	}
	started := time.Now()
	t, err := a.lookup.TokenByHash(ctx, hash)
	if err == nil && !t.Sandbox {
		a.tokens.recordUse(&t, started)
	}
	return t, err
}

// maxJWT is the length of the longest JWT that is verified.
const maxJWT = 8 << 10

// accepts reports whether a credential is a JWT, and these are accepted.
func (a *Authenticator) accepts(jwt string) bool {
	return a.verifier != nil && strings.HasPrefix(jwt, "eyJ") && len(jwt) <= maxJWT && strings.Count(jwt, ".") == 2
}

// bearer returns the credential of the header: one header, the scheme in any case, and a credential of the
// characters that RFC 6750 allows.
func bearer(headers []string) (string, error) {
	if len(headers) == 0 {
		return "", ErrMissing
	}
	scheme, credential, ok := strings.Cut(headers[0], " ")
	credential = strings.Trim(credential, " ")
	if !ok || len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || !IsBearer(credential) {
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
