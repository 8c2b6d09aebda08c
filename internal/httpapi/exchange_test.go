package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/token"
)

// Every route needs its scope, and a token without it gets a challenge.
func TestScopes(t *testing.T) {
	for _, route := range Routes() {
		if route.Sandbox {
			continue
		}
		for _, scopes := range []token.Scope{token.Create, token.Read, token.Write, token.AllScopes &^ route.Scope, 0} {
			s := ferns(1)
			auth := authenticator(func(string) (*token.Token, error) { return &token.Token{Store: "main", Scopes: scopes}, nil })
			a, _ := newAPI(Config{}, Dependencies{
				Auth: auth, Create: s.Create, Edit: s.Edit, Reader: s, Webhooks: noContentHooks{},
			})
			body := strings.NewReader(`{"id":1,"name":"x"}`)
			w := send(a, route.Method, strings.Replace(route.Path, "{id}", "1", 1), body)
			if route.Scope == 0 || route.Scope == AnyScope || scopes&route.Scope != 0 {
				if w.Code >= 300 {
					t.Errorf("%s %s with %v: %d %s", route.Method, route.Path, scopes, w.Code, w.Body)
				}
				wantHeaders(t, w, "WWW-Authenticate", "")
				continue
			}
			has := scopes.String()
			if scopes == 0 {
				has = "no scope"
			}
			needs := route.Scope.String()
			wantError(t, w, 40301, "the operation needs the scope "+needs+", but the token has "+has)
			wantHeaders(t, w, "WWW-Authenticate", `Bearer realm="plantstore", error="insufficient_scope", scope="`+needs+`"`)
			wantCalls(t, s)
		}
	}
}

// Every operation refuses a parameter that it does not have, after it has checked the token, and does nothing.
func TestUnknownParameters(t *testing.T) {
	const none = "the operation has no query parameters; omit the query string"
	auth := authenticator(func(header string) (*token.Token, error) {
		return map[string]*token.Token{
			"valid": {Store: "main", Scopes: token.AllScopes}, "none": {Store: "main"},
		}[header], map[string]error{"": token.ErrMissing}[header]
	})
	for _, route := range Routes() {
		if route.Sandbox {
			continue
		}
		use := " is unknown; use limit, after, tag or q"
		switch route.Path {
		case "/webhooks/{id}/deliveries":
			use = " is unknown; use status, before or limit"
		case "/webhooks/{id}/pull":
			use = " is unknown; use wait"
		}
		for query, want := range map[string]string{
			"dry_run=true":          `the query parameter "dry_run"` + use,
			"limit=1&Tag":           `the query parameter "Tag"` + use,
			"limit=0&=":             `the query parameter ""` + use,
			strings.Repeat("x", 33): `the query parameter "` + strings.Repeat("x", 32) + `"` + use,
			"%zz":                   errBadQuery.Error(),
			"&":                     "",
		} {
			number := 40033
			switch {
			case query == "%zz":
				number = 40029
			case route.parameters == nil && want != "":
				want = none
			}
			s := ferns(1)
			a, _ := newAPI(Config{}, Dependencies{
				Auth: auth, Create: s.Create, Edit: s.Edit, Reader: s, Webhooks: noContentHooks{},
			})
			target := strings.Replace(route.Path, "{id}", "1", 1) + "?" + query
			ask := func(credential string) *httptest.ResponseRecorder {
				return send(a, route.Method, target, strings.NewReader(`{"id":1,"name":"x"}`), "Authorization", credential)
			}
			if want == "" {
				if w := ask("valid"); w.Code >= 300 {
					t.Errorf("%s %s: %d %s", route.Method, target, w.Code, w.Body)
				}
				continue
			}
			wantError(t, ask("valid"), number, want)
			if got := ask("").Code; route.Scope != 0 && got != 401 {
				t.Errorf("%s %s without a token: %d", route.Method, target, got)
			}
			if got := ask("none").Code; route.Scope != 0 && route.Scope != AnyScope && got != 403 {
				t.Errorf("%s %s without the scope: %d", route.Method, target, got)
			}
			wantCalls(t, s)
		}
	}
}

// On a cluster, every operation of webhooks says that it needs another engine, after it has checked the token.
func TestWithoutWebhooks(t *testing.T) {
	all, _ := newAPI(Config{}, Dependencies{})
	plants, _ := newAPI(Config{}, Dependencies{Auth: as(token.Token{Scopes: token.PlantScopes})})
	n := 0
	for _, route := range Routes() {
		if !strings.HasPrefix(route.Path, "/webhooks") {
			continue
		}
		n++
		wantError(t, send(all, route.Method, route.Path, nil), 50102, errNoWebhooks.Error())
		if w := send(plants, route.Method, route.Path, nil); w.Code != 403 {
			t.Errorf("%s %s without webhooks:manage: %d %s", route.Method, route.Path, w.Code, w.Body)
		}
	}
	if n != 11 {
		t.Errorf("%d operations, want 11", n)
	}
}

func TestCredentialFailures(t *testing.T) {
	const realm = `Bearer realm="plantstore"`
	invalid := func(err error) string {
		return realm + `, error="invalid_token", error_description="` + err.Error() + `"`
	}
	rejected := &token.Rejected{Reason: "why"}
	for err, want := range map[error]struct {
		number           int
		challenge, retry string
	}{
		rejected:           {40107, invalid(rejected), ""},
		token.ErrKeys:      {50306, "", "1"},
		token.ErrMissing:   {40101, realm, ""},
		token.ErrMalformed: {40102, realm, ""},
		token.ErrMistyped:  {40103, invalid(token.ErrMistyped), ""},
		token.ErrInvalid:   {40104, invalid(token.ErrInvalid), ""},
		token.ErrExpired:   {40105, invalid(token.ErrExpired), ""},
		token.ErrRevoked:   {40106, invalid(token.ErrRevoked), ""},
		&rate.Exceeded{Why: token.ErrFailures, Wait: 1}: {42902, "", "1"},

		errors.New("secret"): {50001, "", ""}, // which the client does not see
	} {
		s := ferns()
		auth := authenticator(func(header string) (*token.Token, error) {
			if header != "Bearer x" {
				t.Errorf("authenticates %q", header)
			}
			return nil, err
		})
		a, _ := newAPI(Config{}, Dependencies{Auth: auth, Create: s.Create})
		w := send(a, "POST", "/plants", strings.NewReader(`{"id":1,"name":"x"}`), "Authorization", "Bearer x")
		message := err.Error()
		if want.number == 50001 {
			message = errInternal.Error()
		}
		wantError(t, w, want.number, message)
		wantHeaders(t, w, "WWW-Authenticate", want.challenge, "Retry-After", want.retry)
		wantCalls(t, s)
	}
}

// closing is connections that close after the response.
type closing struct {
	oneOwner
	last, lastLater bool
	owner           [32]byte
}

func (c *closing) SetToken(_ context.Context, owner [32]byte) {
	c.owner, c.last = owner, c.last || c.lastLater
}
func (c *closing) Last(context.Context) bool { return c.last }

func TestConnectionClose(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(r *http.Request, c *closing)
		want   string
	}{
		{"kept", func(*http.Request, *closing) {}, ""},
		{"the last response", func(_ *http.Request, c *closing) { c.last = true }, "close"},
		{"the last response by the time it is written", func(_ *http.Request, c *closing) { c.lastLater = true }, "close"},
		{"chunks", func(r *http.Request, _ *closing) { r.TransferEncoding = []string{"chunked"} }, "close"},
		{"HTTP/1.0", func(r *http.Request, _ *closing) { r.ProtoMinor = 0 }, "close"},
		{"CONNECT", func(r *http.Request, _ *closing) { r.Method = http.MethodConnect }, "close"},
	} {
		c := new(closing)
		r := httptest.NewRequest("GET", "/plants", nil)
		r.Header.Set("Authorization", "me")
		test.change(r, c)
		a, _ := newAPI(Config{}, Dependencies{Reader: ferns(), Connections: c})
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != test.want {
			t.Errorf("%s: Connection %q, want %q", test.name, got, test.want)
		}
		if c.owner != token.HashOf("me") && r.Method == "GET" {
			t.Errorf("%s: identified as %x", test.name, c.owner)
		}
	}
}

// A client chooses the id of its request only with a valid token, on a route that needs one.
func TestRequestID(t *testing.T) {
	generated := regexp.MustCompile(`^[0-9a-v]{13}$`)
	auth := authenticator(func(header string) (*token.Token, error) {
		if header != "valid" {
			return nil, token.ErrInvalid
		}
		return &token.Token{Store: "main", Scopes: token.Create}, nil
	})
	a, log := newAPI(Config{}, Dependencies{Auth: auth, Mask: token.NewMask("a-fixed-token-of-a-test")})
	seen := map[string]bool{}
	get := func(path, credential string, sent ...string) string {
		headers := []string{"Authorization", credential}
		for _, id := range sent {
			headers = append(headers, "X-Request-Id", id)
		}
		return send(a, "GET", path, nil, headers...).Header().Get("X-Request-Id")
	}
	wantNew := func(got string) {
		t.Helper()
		if !generated.MatchString(got) || seen[got] || !strings.Contains(log.String(), `"request_id":"`+got+`"`) {
			t.Errorf("id %q; log %s", got, log)
		}
		seen[got] = true
	}
	for _, sent := range [][]string{
		nil, {""}, {"a", "b"}, {strings.Repeat("x", 65)}, {"a b"}, {"a\n"}, {"é"}, {"a;b"}, {"a,b"},
	} {
		wantNew(get("/token?x", "valid", sent...))
	}
	for _, sent := range []string{
		"a", strings.Repeat("x", 64), "azAZ09-_.:/+=", "plant_0123456789abcdefghij", "a-fixed-token-of-a-test",
	} {
		for _, path := range []string{"/token?x", "/plants"} { // 400 and 403, after authentication
			if got := get(path, "valid", sent); got != sent {
				t.Errorf("the id of %s with %q is %q", path, sent, got)
			}
		}
		wantNew(get("/token", "invalid", sent))
		wantNew(get("/nowhere", "valid", sent))
	}
	if strings.Contains(log.String(), "a-fixed-token") || strings.Contains(log.String(), "0123456789abcdefghij") {
		t.Errorf("the log has a credential: %s", log)
	}
}

func TestPanic(t *testing.T) {
	create := func(context.Context, plant.Record) (plant.Outcome, error) { panic("a bug") }
	conns := new(owners)
	conns.n.Store(2)
	a, log := newAPI(Config{}, Dependencies{Create: create, Queue: 10, Connections: conns})
	w := send(a, "POST", "/plants", strings.NewReader(`{"id":1,"name":"x"}`))
	wantError(t, w, 50001, "the service failed; report the X-Request-Id of this response to its operator")
	if text := log.String(); !strings.Contains(text, "a bug") || !strings.Contains(text, "goroutine") ||
		strings.Count(text, "\n") != 1 || !strings.Contains(text, `"level":"ERROR"`) {
		t.Errorf("a panic in the log:\n%s", text)
	}
	if !isFree(&a.creates) {
		t.Error("the create is in flight after a panic")
	}
}

// A handler that fails after it has started the response ends the connection.
func TestIncompleteResponse(t *testing.T) {
	a, log := newAPI(Config{}, Dependencies{MaxMemory: 1 << 20})
	h := a.adapt(Route{Scope: token.Read, handle: func(x *exchange) error {
		if err := x.reserve(100 << 10); err != nil {
			return err
		}
		x.Write([]byte("half"))
		return errors.New("broken")
	}})
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recover() = %v, want %v", p, http.ErrAbortHandler)
		}
		if !isFree(&a.memory) || !strings.Contains(log.String(), "broken") {
			t.Errorf("memory is reserved, or the reason is not in the log: %s", log)
		}
	}()
	send(h, "GET", "/", nil)
}

// Only the first status counts.
func TestWriteHeader(t *testing.T) {
	a, _ := newAPI(Config{}, Dependencies{})
	w := send(a.adapt(Route{handle: func(x *exchange) error {
		x.WriteHeader(http.StatusNoContent)
		x.WriteHeader(http.StatusTeapot)
		return nil
	}}), "GET", "/", nil)
	if w.Code != http.StatusNoContent {
		t.Errorf("status %d, want the first one, 204", w.Code)
	}
}
