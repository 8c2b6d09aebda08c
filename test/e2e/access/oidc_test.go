package access

import (
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"plantstore/test/testkit"
	"plantstore/test/testkit/issuer"
)

func createWith(t *testing.T, s *testkit.Server, credential string) testkit.Response {
	t.Helper()
	return s.Do(t, "POST", "/plants", `{"id":1,"name":"x"}`, testkit.ContentJSON, bearer(credential))
}

// Tokens of an identity provider work beside our own. While the provider does not respond the service starts, our own
// tokens work, and JWTs get 503.
func TestIdentityProvider(t *testing.T) {
	t.Parallel()
	i := issuer.Start(t)
	args := []string{"--oidc-issuer", i.URL, "--oidc-audience", issuer.Audience, "--oidc-store-claim", "tenant",
		"--default-rate", "20/m", "--default-burst", "10", "--access-log", "all"}
	s := testkit.Start(t, testkit.Engines[0].Database(t), args...)
	s.WaitLogged(t, "fetched the keys of the identity provider")
	testkit.WantResponse(t, "our own token", s.Create(t, `{"id":2,"name":"x"}`), 200, `{"name":"x"}`)
	alice := i.Token(t, map[string]any{"tenant": "shop"})
	testkit.WantResponse(t, "create", createWith(t, s, alice), 200, `{"name":"x"}`)

	i.Down.Store(true)
	without := testkit.Start(t, testkit.Engines[0].Database(t), args...)
	without.WaitLogged(t, "the keys of the identity provider can't be fetched; retrying")
	testkit.WantResponse(t, "our own token", without.Create(t, `{"id":2,"name":"x"}`), 200, `{"name":"x"}`)
	down := createWith(t, without, alice)
	testkit.WantError(t, "a JWT", down, 50306)
	if down.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}

	// The first service knows the keys.
	testkit.WantResponse(t, "read", s.Do(t, "GET", "/plants", "", bearer(alice)), 200, `[{"id":1,"name":"x"}]`)
	testkit.WantResponse(t, "read another store", s.Do(t, "GET", "/plants", ""), 200, `[{"id":2,"name":"x"}]`)
	about := s.Do(t, "GET", "/token", "", bearer(alice))
	if !strings.Contains(about.Body, `"name":"oidc:alice","store":"shop","scopes":["plants:create","plants:read"]`) {
		t.Errorf("GET /token: %s", about.Body)
	}
	testkit.WantError(t, "without the scope", s.Do(t, "DELETE", "/plants/1", "", bearer(alice)), 40301)
	limited := testkit.Response{}
	for n := 0; n < 100 && limited.Status != 429; n++ { // The tokens of a subject share its rate.
		limited = createWith(t, s, i.Token(t, map[string]any{"tenant": "shop", "jti": n}))
	}
	testkit.WantError(t, "over the rate", limited, 42901)
	wantRejected(t, s, i)
	s.Do(t, "GET", "/nowhere/"+alice, "")
	s.Kill()
	if strings.Contains(s.Stderr.String(), alice[:60]) {
		t.Error("a token is in the log")
	}
}

// wantRejected checks that a response says why a JWT is invalid, and has nothing of it.
func wantRejected(t *testing.T, s *testkit.Server, i *issuer.Issuer) {
	t.Helper()
	forger := issuer.NewKey(t, jose.RS256, i.Key().KeyID)
	for _, test := range []struct {
		jwt    string
		number int
		reason string
	}{
		{issuer.Sign(t, forger, i.Claims(map[string]any{"tenant": "shop"})), 40107, "no key of the identity provider"},
		{i.Token(t, map[string]any{"tenant": "shop", "aud": "other"}), 40107, "it is for another audience (aud)"},
		{i.Token(t, map[string]any{"tenant": "a/b"}), 40107, "its claim tenant is not the name of a store"},
		{i.Token(t, map[string]any{"tenant": "shop", "exp": time.Now().Add(-2 * time.Minute).Unix()}), 40105, "expired"},
		{i.Token(t, map[string]any{"tenant": "shop", "x": strings.Repeat("x", 9<<10)}), 40103, "malformed"},
	} {
		a := createWith(t, s, test.jwt)
		testkit.WantError(t, test.reason, a, test.number)
		challenge := a.Header.Get("WWW-Authenticate")
		if !strings.Contains(a.Body, test.reason) || !strings.Contains(challenge, `error="invalid_token"`) ||
			!strings.Contains(challenge, test.reason) || strings.Contains(a.Body+challenge, test.jwt[:20]) {
			t.Errorf("%s: %s %s", test.reason, a.Body, challenge)
		}
	}
}
