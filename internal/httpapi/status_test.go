package httpapi

import (
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

// as authenticates every request with a token.
func as(t token.Token) authenticator {
	return func(string) (*token.Token, error) { return &t, nil }
}

func TestGetToken(t *testing.T) {
	expires := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	limit := rate.Limit{Count: 10, Per: time.Minute, Burst: 3}
	for _, test := range []struct {
		token   token.Token
		service rate.Limit
		want    string
	}{
		{token.Token{Name: "ci", Store: "main", Scopes: token.AllScopes}, rate.Limit{},
			`{"name":"ci","store":"main","scopes":["plants:create","plants:read","plants:write","webhooks:manage"]}`},
		{token.Token{Name: "a", Store: "b", Scopes: token.Write, Expires: expires, Rate: limit, Tail: "tail"}, rate.Limit{},
			`{"name":"a","store":"b","scopes":["plants:write"],"expires":"2027-01-01T00:00:00Z","rate":"10/m","burst":3}`},
		{token.Token{Name: "a", Store: "b", Expires: expires.Add(time.Millisecond)}, limit,
			`{"name":"a","store":"b","scopes":[],"expires":"2027-01-01T00:00:00.001Z","rate":"10/m","burst":3}`},
		{token.Token{Name: "a", Store: "b", Rate: limit}, rate.Limit{Count: 1, Per: time.Second, Burst: 1},
			`{"name":"a","store":"b","scopes":[],"rate":"10/m","burst":3}`},
	} {
		a, _ := newAPI(Config{Rate: test.service}, Dependencies{Auth: as(test.token)})
		w := send(a, "GET", "/token", nil)
		wantResponse(t, w, 200, test.want)
		wantHeaders(t, w, "Cache-Control", "no-store")
	}
}

// Requests about the token do not spend its rate, and have one of their own.
func TestStatusRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := token.Token{Scopes: token.AllScopes, Rate: rate.Limit{Count: 1, Per: time.Minute, Burst: 1}}
		a, _ := newAPI(Config{}, Dependencies{Auth: as(limited), Reader: ferns()})
		w := send(a, "GET", "/token", nil)
		wantHeaders(t, w, "RateLimit-Policy", `"status";q=10;w=2`, "RateLimit", `"status";r=9;t=1`)
		for n := range 9 {
			if w := send(a, "GET", "/token", nil); w.Code != 200 {
				t.Errorf("request %d: %d %s", n, w.Code, w.Body)
			}
		}
		w = send(a, "GET", "/token", nil)
		wantError(t, w, 42901, "the token exceeded the rate of this path, 5/s with a burst of 10; retry in 1 s")
		wantHeaders(t, w, "Retry-After", "1", "RateLimit-Policy", `"status";q=10;w=2`, "RateLimit", `"status";r=0;t=1`)
		wantHeaders(t, send(a, "GET", "/plants", nil), "RateLimit", `"token";r=0;t=60`)
		if w := send(a, "GET", "/plants", nil); w.Code != 429 {
			t.Errorf("a list over the rate: %d", w.Code)
		}
		time.Sleep(200 * time.Millisecond)
		if w := send(a, "GET", "/token", nil); w.Code != 200 {
			t.Errorf("a request of a token whose own rate is exceeded: %d", w.Code)
		}
	})
}
