package oidc

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"plantstore/internal/token"
	"plantstore/test/testkit"
	"plantstore/test/testkit/issuer"
)

// start returns a verifier that has fetched the keys of the issuer.
func start(t testing.TB, i *issuer.Issuer, cfg Config) *Verifier {
	t.Helper()
	cfg.Issuer, cfg.Audience, cfg.Log = i.URL, issuer.Audience, slog.New(slog.DiscardHandler)
	if cfg.ScopeClaim == "" {
		cfg.ScopeClaim = "scope"
	}
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	return v
}

// age makes the keys older than minInterval.
func age(v *Verifier) {
	old := *v.keys.Load()
	old.fetched = old.fetched.Add(-minInterval)
	v.keys.Store(&old)
}

func wantRejected(t *testing.T, what string, v *Verifier, jwt, reason string) {
	t.Helper()
	got, err := v.Verify(jwt)
	rejected, ok := errors.AsType[*token.Rejected](err)
	if !ok || rejected.Reason != reason {
		t.Errorf("%s: Verify() = %v, %v, want %q", what, got, err, reason)
	}
	if err != nil && len(jwt) > 0 && strings.Contains(err.Error(), jwt) {
		t.Errorf("%s: the error has the token", what)
	}
}

func TestVerify(t *testing.T) {
	i := issuer.Start(t)
	for _, algorithm := range algorithms {
		i.Rotate(t, algorithm)
		v := start(t, i, Config{})
		got, err := v.Verify(i.Token(t, nil))
		if err != nil || got.Store != "main" || got.Scopes != token.Create|token.Read || got.Name != "oidc:alice" ||
			time.Until(got.Expires) < 59*time.Minute || time.Until(got.Expires) > 61*time.Minute {
			t.Errorf("%s: Verify() = %+v, %v", algorithm, got, err)
		}
	}
}

func TestClaims(t *testing.T) {
	i := issuer.Start(t)
	v := start(t, i, Config{})
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for _, test := range []struct {
		change map[string]any
		reason string // "" if it is valid
	}{
		{map[string]any{"iss": "https://other.example"}, "another issuer (iss) has signed it"},
		{map[string]any{"iss": i.URL + "/"}, "another issuer (iss) has signed it"},
		{map[string]any{"iss": nil}, "another issuer (iss) has signed it"},
		{map[string]any{"aud": "other"}, "it is for another audience (aud)"},
		{map[string]any{"aud": []string{"other", "plants2"}}, "it is for another audience (aud)"},
		{map[string]any{"aud": []string{"other", "plants"}}, ""},
		{map[string]any{"aud": nil}, "it is for another audience (aud)"},
		{map[string]any{"aud": 7}, "it is for another audience (aud)"},
		{map[string]any{"sub": nil}, "its subject (sub) is missing"},
		{map[string]any{"exp": nil}, "its expiry (exp) is missing or invalid"},
		{map[string]any{"exp": "tomorrow"}, "its expiry (exp) is missing or invalid"},
		{map[string]any{"exp": strconv.FormatInt(at(time.Hour), 10)}, "its expiry (exp) is missing or invalid"},
		{map[string]any{"exp": 0}, "its expiry (exp) is missing or invalid"},
		{map[string]any{"exp": -62135596860}, "its expiry (exp) is missing or invalid"}, // 60 s later is the zero time
		{map[string]any{"exp": int64(1) << 62}, "its expiry (exp) is missing or invalid"},
		{map[string]any{"exp": time.Now().Add(time.Hour).UnixMilli()}, "its expiry (exp) is missing or invalid"},
		{map[string]any{"exp": 1e300}, "its expiry (exp) is missing or invalid"},
		{map[string]any{"exp": at(time.Hour), "exP": int64(1) << 62}, ""},
		{map[string]any{"exp": maxExpiry}, ""},
		{map[string]any{"nbf": strconv.FormatInt(at(time.Hour), 10)}, "its start (nbf) is not a number"},
		{map[string]any{"nbf": 0}, ""},
		{map[string]any{"nbf": at(50 * time.Second)}, ""},
		{map[string]any{"nbf": at(90 * time.Second)}, "it is not valid yet (nbf)"},
		{map[string]any{"nbf": at(-time.Hour)}, ""},
		{map[string]any{"iat": at(time.Hour)}, ""},
	} {
		jwt := i.Token(t, test.change)
		if test.reason != "" {
			wantRejected(t, test.reason, v, jwt, test.reason)
		} else if got, err := v.Verify(jwt); err != nil || got.Expires.Year() > 9999 {
			t.Errorf("%v: expires %v, %v", test.change, got.Expires, err)
		}
	}
	// The Authenticator refuses what has expired, with an error of its own.
	got, err := v.Verify(i.Token(t, map[string]any{"exp": at(-90 * time.Second)}))
	if left := time.Until(got.Expires); err != nil || left > -29*time.Second || left < -33*time.Second {
		t.Errorf("a token that has expired = %v, %v, want an expiry 60 s later than in the token", got.Expires, err)
	}
}

// A claim has exactly its name, and is there once. No reason has a text of the JWT.
func TestExactClaims(t *testing.T) {
	i := issuer.Start(t)
	v := start(t, i, Config{StoreClaim: "tenant"})
	const audience = "it is for another audience (aud)"
	valid := map[string]string{"iss": strconv.Quote(i.URL), "aud": `"plants"`, "sub": `"alice"`, "tenant": `"shop"`,
		"exp": strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10), "scope": `"plants:read"`}
	for _, test := range []struct{ claim, text, reason string }{
		{"aud", `"aud":"plants"`, ""},
		{"aud", `"\u0061ud":["plants"]`, ""},
		{"aud", `"AUD":"plants"`, audience},
		{"aud", `"Aud":["plants"]`, audience},
		{"aud", `"aud":"other","AUD":"plants"`, audience},
		{"aud", `"AUD":"plants","aud":"other"`, audience},
		{"aud", `"aud":"plants","AUD":"other"`, ""},
		{"aud", `"aud":["other",["plants"],{"plants":"plants"}]`, audience},
		{"aud", `"aud":"other","aud":"plants"`, malformed},
		{"aud", `"aud":"plants","\u0061ud":"plants"`, malformed},
		{"iss", `"ISS":` + valid["iss"], "another issuer (iss) has signed it"},
		{"iss", `"iss":` + valid["iss"] + `,"iss":` + valid["iss"], malformed},
		{"sub", `"Sub":"alice"`, "its subject (sub) is missing"},
		{"sub", `"sub":"alice","sub":"secret-subject"`, malformed},
		{"exp", `"EXP":` + valid["exp"], "its expiry (exp) is missing or invalid"},
		{"exp", `"exp":1,"exp":` + valid["exp"], malformed},
		{"tenant", `"Tenant":"shop"`, "its claim tenant is not the name of a store"},
		{"tenant", `"tenant":"secret-store","tenant":"shop"`, malformed},
		{"scope", `"scope":"plants:read","scope":"plants:write"`, malformed},
		{"scope", `"scope":"plants:read","deep":{"a":1,"a":2}`, malformed},
		{"", `"secret-name":1,"secret-name":2`, malformed},
	} {
		text := test.text
		for name, value := range valid {
			if name != test.claim {
				text += "," + strconv.Quote(name) + ":" + value
			}
		}
		jwt := issuer.Sign(t, i.Key(), json.RawMessage("{"+text+"}"))
		if test.reason != "" {
			wantRejected(t, test.text, v, jwt, test.reason)
		} else if got, err := v.Verify(jwt); err != nil || got.Name != "oidc:alice" || got.Store != "shop" {
			t.Errorf("%s: Verify() = %+v, %v", test.text, got, err)
		}
	}
}

func TestScopesAndStores(t *testing.T) {
	i := issuer.Start(t)
	v := start(t, i, Config{ScopeClaim: "permissions", StoreClaim: "tenant"})
	for _, test := range []struct {
		change map[string]any
		store  string
		scopes token.Scope
	}{
		{map[string]any{"tenant": "shop", "permissions": "plants:read admin"}, "shop", token.Read},
		{map[string]any{"tenant": "shop", "permissions": []any{"plants:read", "plants:write", 7, nil}}, "shop",
			token.Read | token.Write},
		{map[string]any{"tenant": "shop", "permissions": []any{"plants:read", []string{"a plants:write b"},
			map[string]any{"x": " plants:create "}}}, "shop", token.Read},
		{map[string]any{"tenant": "shop"}, "shop", 0},
		{map[string]any{"tenant": "shop", "permissions": 7}, "shop", 0},
		{map[string]any{"tenant": "shop", "permissions": map[string]any{"plants:read": true}}, "shop", 0},
		{map[string]any{"tenant": "shop", "permissions": "plants:READ plants"}, "shop", 0},
	} {
		got, err := v.Verify(i.Token(t, test.change))
		if err != nil || got.Store != test.store || got.Scopes != test.scopes {
			t.Errorf("%v: Verify() = %+v, %v, want %v on %s", test.change, got, err, test.scopes, test.store)
		}
	}
	for _, store := range []any{nil, "", "a/b", 7, strings.Repeat("x", 65)} {
		wantRejected(t, "a store", v, i.Token(t, map[string]any{"tenant": store}),
			"its claim tenant is not the name of a store")
	}
}

// Tokens of a subject share their limits, and its name can't be mistaken for something else.
func TestIdentity(t *testing.T) {
	i := issuer.Start(t)
	v := start(t, i, Config{})
	verify := func(subject string) token.Token {
		got, err := v.Verify(i.Token(t, map[string]any{"sub": subject, "jti": time.Now().UnixNano()}))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if alice := verify("alice").Hash; alice != verify("alice").Hash || alice == verify("bob").Hash {
		t.Error("hashes do not tell subjects apart")
	}
	for subject, want := range map[string]string{
		"auth0|5f7c": "oidc:auth0|5f7c", "a b\n\x1b[31m\"level=": "oidc:a_b__[31m_level_", "ü": "oidc:_",
		strings.Repeat("é", 40): "oidc:" + strings.Repeat("_", 32),
	} {
		if got := verify(subject).Name; got != want {
			t.Errorf("the name of %q = %q, want %q", subject, got, want)
		}
	}
}

func encode(v any) string {
	text, _ := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(text)
}

// Forged tokens are rejected: without a signature, with a public key as the secret, and with a key that they bring
// along.
func TestForged(t *testing.T) {
	i := issuer.Start(t)
	v := start(t, i, Config{})
	key, claims := i.Key(), i.Claims(nil)
	valid := i.Token(t, nil)
	parts := strings.Split(valid, ".")
	for _, none := range []string{"none", "None", "NONE", ""} {
		unsigned := encode(map[string]any{"alg": none, "kid": key.KeyID}) + "." + encode(claims) + "."
		for _, signature := range []string{"", parts[2]} {
			wantRejected(t, "alg "+none, v, unsigned+signature, malformed)
		}
	}
	public := key.Public()
	der, err := x509.MarshalPKIXPublicKey(public.Key)
	if err != nil {
		t.Fatal(err)
	}
	jwk, _ := public.MarshalJSON()
	for _, secret := range [][]byte{der, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), jwk} {
		text := encode(map[string]any{"alg": "HS256", "kid": key.KeyID}) + "." + encode(claims)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		wantRejected(t, "HS256", v, text+"."+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), malformed)
	}
	attacker := issuer.NewKey(t, jose.RS256, key.KeyID)
	const unknown = "no key of the identity provider has signed it"
	wantRejected(t, "the key id of another", v, issuer.Sign(t, attacker, claims), unknown)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: attacker.Key},
		&jose.SignerOptions{EmbedJWK: true, ExtraHeaders: map[jose.HeaderKey]any{"jku": i.URL + "/keys"}})
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(claims)
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	embedded, _ := signed.CompactSerialize()
	wantRejected(t, "its own key", v, embedded, unknown)
	otherAlgorithm := key
	otherAlgorithm.Algorithm = string(jose.PS256)
	wantRejected(t, "an algorithm that the key is not for", v, issuer.Sign(t, otherAlgorithm, claims), unknown)

	changed := maps.Clone(claims)
	changed["sub"] = "admin"
	wantRejected(t, "another payload", v, parts[0]+"."+encode(changed)+"."+parts[2], unknown)
	for _, text := range []string{
		"", ".", "..", "eyJ..", valid + ".", valid + "." + valid, parts[0] + "." + parts[1], parts[0] + ".." + parts[2],
		parts[0] + "." + parts[1] + ".", "eyJhbGciOiJSUzI1NiJ9.e30.!",
	} {
		if _, err := v.Verify(text); !errors.Is(err, token.ErrRejected) {
			t.Errorf("Verify(%.40q) = %v, want it rejected", text, err)
		}
	}
}

// Secrets and keys for encryption in the key set are ignored, and so are keys of unknown types.
func TestKeySet(t *testing.T) {
	i := issuer.Start(t)
	i.Publish(map[string]any{"kty": "oct", "kid": "secret", "k": "c2VjcmV0"})
	i.Publish(map[string]any{"kty": "OKP", "crv": "Ed448", "kid": "other", "x": "AA"})
	i.Publish("text")
	private := issuer.NewKey(t, jose.ES256, "private")
	i.Publish(private)
	v := start(t, i, Config{})
	if _, err := v.Verify(i.Token(t, nil)); err != nil || len(v.keys.Load().keys) != 1 {
		t.Errorf("%d keys, %v, want 1", len(v.keys.Load().keys), err)
	}
}

// A key that is not there yet is fetched, at most once in minInterval however many tokens have unknown keys.
func TestRotation(t *testing.T) {
	i := issuer.Start(t)
	v := start(t, i, Config{})
	go v.Run(t.Context())
	testkit.WaitFor(t, "the first fetch of Run", func() bool { return i.Fetches.Load() == 2 })
	old, fresh := i.Token(t, nil), issuer.NewKey(t, jose.ES256, "new")
	i.Rotate(t, jose.ES256)
	jwt := i.Token(t, nil)
	wantRejected(t, "just after a fetch", v, jwt, "no key of the identity provider has signed it")
	age(v)
	if _, err := v.Verify(jwt); !errors.Is(err, token.ErrKeys) {
		t.Errorf("a new key: %v, want %v", err, token.ErrKeys)
	}
	for range 1000 {
		fresh.KeyID = time.Now().String()
		v.Verify(issuer.Sign(t, fresh, i.Claims(nil)))
	}
	testkit.WaitFor(t, "the new key", func() bool { _, err := v.Verify(jwt); return err == nil })
	if n := i.Fetches.Load(); n != 3 {
		t.Errorf("%d fetches, want 3", n)
	}
	if _, err := v.Verify(old); err != nil {
		t.Errorf("the old key: %v", err)
	}
	// A removed key is refused after the next fetch.
	i.Retire()
	if err := v.fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRejected(t, "a retired key", v, old, "no key of the identity provider has signed it")
}

// Wrong tokens without a key id are rejected, which counts against their address, even while keys can't be fetched.
// They still cause a fetch, after which a new key is accepted.
func TestWithoutKeyID(t *testing.T) {
	i := issuer.Start(t)
	v := start(t, i, Config{})
	withoutID := func(key jose.JSONWebKey) string {
		key.KeyID = ""
		return issuer.Sign(t, key, i.Claims(nil))
	}
	if _, err := v.Verify(withoutID(i.Key())); err != nil {
		t.Errorf("a known key: %v", err)
	}
	age(v)
	jwt := withoutID(i.Rotate(t, jose.ES256))
	for range 2 {
		wantRejected(t, "without a key id", v, jwt, "no key of the identity provider has signed it")
	}
	if len(v.wanted) != 1 {
		t.Error("rejected tokens do not cause a fetch")
	}
	if err := v.fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(jwt); err != nil {
		t.Errorf("a new key after a fetch: %v", err)
	}
}

// fetchFrom fetches keys from an issuer whose responses at a path the test makes.
func fetchFrom(t *testing.T, path string, respond http.HandlerFunc) error {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			respond(w, r)
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, server.URL, server.URL+"/keys")
	}))
	defer server.Close()
	v, err := New(Config{Issuer: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return v.fetch(t.Context())
}

var issuerPaths = []string{"/.well-known/openid-configuration", "/keys"}

// The response of an issuer is read up to a limit.
func TestEndlessResponses(t *testing.T) {
	for _, path := range issuerPaths {
		var sent atomic.Int64
		err := fetchFrom(t, path, func(w http.ResponseWriter, _ *http.Request) {
			for text := bytes.Repeat([]byte(" "), 1<<16); sent.Load() < 256<<20; sent.Add(1 << 16) {
				if _, err := w.Write(text); err != nil {
					return
				}
			}
		})
		if n := sent.Load(); err == nil || !strings.Contains(err.Error(), "too large") || n >= 256<<20 {
			t.Errorf("%s: fetch() = %v after %d MiB, want that it is too large", path, err, n>>20)
		}
	}
}

func TestRedirects(t *testing.T) {
	i := issuer.Start(t)
	for _, path := range issuerPaths {
		err := fetchFrom(t, path, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, i.URL+path, http.StatusFound)
		})
		if err == nil || !strings.Contains(err.Error(), "302 Found") {
			t.Errorf("%s redirects: fetch() = %v, want an error", path, err)
		}
	}
}

// The discovery document is that of the issuer that the operator has named.
func TestOtherIssuer(t *testing.T) {
	i := issuer.Start(t)
	err := fetchFrom(t, issuerPaths[0], func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
	})
	if err == nil || !strings.Contains(err.Error(), "names itself") {
		t.Errorf("fetch() = %v, want that the issuer names itself otherwise", err)
	}
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]bool{
		"https://id.example/realms/x": true, "http://127.0.0.1:1": true, "http://localhost": true, "http://[::1]:80": true,
		"http://id.example": false, "": false, "id.example": false, "https://": false, "ftp://127.0.0.1": false,
		"http://localhost.example": false, "http://127.0.0.1.example": false,
	} {
		if _, err := New(Config{Issuer: text}); (err == nil) != want {
			t.Errorf("New(%q) = %v", text, err)
		}
	}
}

// Project Wycheproof, testvectors_v1/json_web_signature_test.json (Apache License 2.0).
func TestWycheproof(t *testing.T) {
	file, err := os.Open("testdata/json_web_signature_test.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		TestGroups []struct {
			Comment string
			Public  json.RawMessage
			Tests   []struct {
				TcID                 int
				Comment, JWS, Result string
			}
		}
	}
	if err := json.NewDecoder(text).Decode(&suite); err != nil {
		t.Fatal(err)
	}
	// The key names the algorithm ES521, which does not exist, or PS256 where the signature is PS384.
	misnamed := []int{347, 351, 346, 350}
	// The salt of the signature has another length than that of the hash, which only the owner of the key can choose.
	otherSalt := []int{281, 282, 283, 284, 285, 286}
	valid, invalid := 0, 0
	for _, group := range suite.TestGroups {
		v := &Verifier{wanted: make(chan struct{}, 1)}
		if group.Public != nil { // otherwise the key is a secret
			v.keys.Store(&keySet{verificationKeys([]json.RawMessage{group.Public}), time.Now()})
		} else {
			v.keys.Store(&keySet{nil, time.Now()})
		}
		for _, test := range group.Tests {
			want := test.Result == "valid" && group.Public != nil && !slices.Contains(misnamed, test.TcID) ||
				slices.Contains(otherSalt, test.TcID)
			_, err := v.verifySignature(test.JWS)
			if (err == nil) != want {
				t.Errorf("%d %s %s: %v, want it valid: %v", test.TcID, group.Comment, test.Comment, err, want)
			}
			if want {
				valid++
			} else {
				invalid++
			}
		}
	}
	t.Logf("%d valid and %d invalid signatures", valid, invalid)
	if valid < 20 || invalid < 300 {
		t.Errorf("%d valid and %d invalid signatures, want at least 20 and 300", valid, invalid)
	}
}
