// Package oidc verifies tokens of an identity provider: JWTs that an OpenID Connect issuer has signed.
package oidc

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"plantstore/internal/token"
)

// Config is what an operator sets.
type Config struct {
	Issuer     string // URL, as in the claim iss
	Audience   string // this service in the claim aud
	ScopeClaim string // has the scopes, as a list or separated by spaces
	StoreClaim string // has the name of the store; "" for the default store
	Log        *slog.Logger
}

const malformed = "it is malformed, or its algorithm is not supported"

// skew is how far the clocks of the provider and of this machine may differ.
const skew = time.Minute

const maxExpiry = 253_402_214_400 // the last day of the year 9999, in seconds: later times have no form in JSON

// Verifier implements token.Verifier with the keys that Run fetches.
type Verifier struct {
	cfg    Config
	client *http.Client
	keys   atomic.Pointer[keySet] // nil until they have been fetched
	wanted chan struct{}          // has an element if a JWT needs a key that was not fetched
}

// New returns a Verifier that rejects every JWT with token.ErrKeys until Run has fetched the keys.
func New(cfg Config) (*Verifier, error) {
	if err := checkURL(cfg.Issuer); err != nil {
		return nil, err
	}
	// A provider responds itself, so redirects, which could lead to an unencrypted URL, are errors.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Verifier{
		cfg: cfg, client: &http.Client{Timeout: fetchTimeout, CheckRedirect: refuse}, wanted: make(chan struct{}, 1),
	}, nil
}

// Verify implements token.Verifier. Names of claims are case-sensitive, a claim that occurs twice is malformed, and no
// error contains a value of the JWT: libraries for JWTs differ in these.
func (v *Verifier) Verify(jwt string) (token.Token, error) {
	payload, err := v.verifySignature(jwt)
	if err != nil {
		return token.Token{}, err
	}
	var claims map[string]any
	if json.Unmarshal(payload, &claims) != nil { // also if a name occurs twice
		return reject(malformed)
	}
	audience, _ := claims["aud"].([]any)
	subject, _ := claims["sub"].(string)
	expiry, isTime := claims["exp"].(float64)
	notBefore, isStart := claims["nbf"].(float64)
	switch {
	case claims["iss"] != v.cfg.Issuer:
		return reject("another issuer (iss) has signed it")
	case claims["aud"] != any(v.cfg.Audience) && !slices.Contains(audience, any(v.cfg.Audience)):
		return reject("it is for another audience (aud)")
	case subject == "":
		return reject("its subject (sub) is missing")
	case !isTime || expiry < 1 || expiry > maxExpiry:
		return reject("its expiry (exp) is missing or invalid")
	case claims["nbf"] != nil && !isStart:
		return reject("its start (nbf) is not a number")
	case notBefore > float64(time.Now().Add(skew).Unix()):
		return reject("it is not valid yet (nbf)")
	}
	return v.token(subject, time.Unix(int64(expiry), 0), claims)
}

func reject(reason string) (token.Token, error) {
	return token.Token{}, &token.Rejected{Reason: reason}
}

func (v *Verifier) token(subject string, expiry time.Time, claims map[string]any) (token.Token, error) {
	store := token.DefaultStore
	if v.cfg.StoreClaim != "" {
		store, _ = claims[v.cfg.StoreClaim].(string)
		if token.CheckName("store", store) != nil {
			return reject("its claim " + v.cfg.StoreClaim + " is not the name of a store")
		}
	}
	scopes, _ := claims[v.cfg.ScopeClaim].(string)
	list, _ := claims[v.cfg.ScopeClaim].([]any)
	for _, element := range list {
		scope, _ := element.(string)
		scopes += " " + scope
	}
	return token.Token{
		Name: "oidc:" + printable(subject), Store: store, Scopes: token.StoredScopes(scopes),
		// The short-lived tokens of a subject share a rate and the other limits. No credential has this hash.
		Hash:    token.HashOf(v.cfg.Issuer + "\x00" + subject),
		Expires: expiry.Add(skew),
	}, nil
}

// printable returns a subject without characters that could be mistaken for something else in a log or a table.
func printable(subject string) string {
	return strings.Map(func(r rune) rune {
		if r > '~' || r <= ' ' || strings.ContainsRune(`"'\=:`, r) {
			return '_'
		}
		return r
	}, subject[:min(len(subject), 64)])
}
