// Package issuer is an OpenID Connect identity provider for tests: discovery and keys over HTTP, and signed tokens.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is what the tokens are for, unless their claims say otherwise.
const Audience = "plants"

// Issuer is an identity provider. Its fields may be changed between requests.
type Issuer struct {
	URL     string
	Fetches atomic.Int32 // of keys
	Down    atomic.Bool  // returns 503 to every request

	server *httptest.Server
	mu     sync.Mutex
	keys   []jose.JSONWebKey // private; the last signs
	more   []any             // other keys of the set
}

// Start starts an issuer with an RSA key.
func Start(t testing.TB) *Issuer {
	i := &Issuer{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["none","HS256","RS256"]}`,
			i.URL, i.URL+"/keys")
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		i.Fetches.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		all := append([]any{}, i.more...)
		for _, key := range i.keys {
			all = append(all, key.Public())
		}
		json.NewEncoder(w).Encode(map[string]any{"keys": all})
	})
	i.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.Down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.server.Close)
	i.URL = "http://" + i.server.Listener.Addr().String() // before the handler can read it
	i.Rotate(t, jose.RS256)
	i.server.Start()
	return i
}

// NewKey returns a private key for an algorithm.
func NewKey(t testing.TB, algorithm jose.SignatureAlgorithm, id string) jose.JSONWebKey {
	t.Helper()
	var key crypto.Signer
	var err error
	switch algorithm {
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.ES512:
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(algorithm), Use: "sig"}
}

// Rotate adds a key, which signs from now on, and returns it.
func (i *Issuer) Rotate(t testing.TB, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	t.Helper()
	key := NewKey(t, algorithm, fmt.Sprintf("key-%d", time.Now().UnixNano()))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = append(i.keys, key)
	return key
}

// Retire removes all keys but the last.
func (i *Issuer) Retire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// Publish adds something else to the key set.
func (i *Issuer) Publish(key any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.more = append(i.more, key)
}

// Key returns the key that signs.
func (i *Issuer) Key() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

// Claims returns valid claims, with changes; a nil value removes a claim.
func (i *Issuer) Claims(changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": i.URL, "aud": Audience, "sub": "alice", "scope": "openid plants:create plants:read",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Token returns a token with valid claims, with changes, signed with the last key.
func (i *Issuer) Token(t testing.TB, changes map[string]any) string {
	t.Helper()
	return Sign(t, i.Key(), i.Claims(changes))
}

// Sign returns a JWT with claims.
func Sign(t testing.TB, key jose.JSONWebKey, claims any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
