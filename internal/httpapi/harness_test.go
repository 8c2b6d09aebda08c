package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// oneOwner is connections that all belong to one owner and stay open.
type oneOwner struct{}

func (oneOwner) SetToken(context.Context, [32]byte) {}
func (oneOwner) Last(context.Context) bool          { return false }
func (oneOwner) Tokens() int                        { return 1 }
func (oneOwner) Park(context.Context) func() bool   { return func() bool { return true } }

// authenticator is an Authenticator in one function.
type authenticator func(header string) (*token.Token, error)

func (a authenticator) Authenticate(_ context.Context, headers []string, _ token.Source) (*token.Token, error) {
	return a(strings.Join(headers, "|"))
}

// bearers takes every Authorization header for a token of its own, with every scope on the store "main".
func bearers(header string) (*token.Token, error) {
	return &token.Token{Hash: token.HashOf(header), Store: "main", Scopes: token.AllScopes}, nil
}

// fakeStorage keeps plants in memory. It fails on demand: fail has the error of a call such as "List 2", the second
// call of List.
type fakeStorage struct {
	plants  map[int64]plant.Content
	outcome plant.Outcome // of creates
	fail    map[string]error
	calls   []string
	counts  map[string]int
}

func (s *fakeStorage) call(method, format string, args ...any) error {
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[method]++
	s.calls = append(s.calls, method+" "+fmt.Sprintf(format, args...))
	return s.fail[fmt.Sprint(method, " ", s.counts[method])]
}

func (s *fakeStorage) Create(_ context.Context, r plant.Record) (plant.Outcome, error) {
	return s.outcome, s.call("Create", "%s %s", r.Store, r.AppendJSON(nil))
}

func (s *fakeStorage) Get(_ context.Context, name string, id int64) (plant.Plant, error) {
	if err := s.call("Get", "%s %d", name, id); err != nil {
		return plant.Plant{}, err
	}
	p, ok := s.plants[id]
	if !ok {
		return plant.Plant{}, plant.ErrNotFound
	}
	return plant.Plant{ID: id, Content: p}, nil
}

func (s *fakeStorage) List(_ context.Context, name string, after *int64, limit int) (list []plant.Plant, err error) {
	from := "start"
	if after != nil {
		from = fmt.Sprint(*after)
	}
	if err := s.call("List", "%s %s %d", name, from, limit); err != nil {
		return nil, err
	}
	size := 0
	for _, id := range slices.Sorted(maps.Keys(s.plants)) {
		if after != nil && id <= *after || len(list) == limit || size >= storage.PageBytes {
			continue
		}
		p := s.plants[id]
		size += p.Size()
		list = append(list, plant.Plant{ID: id, Content: p})
	}
	return list, nil
}

func (s *fakeStorage) Count(_ context.Context, name string) (int64, error) {
	return int64(len(s.plants)), s.call("Count", "%s", name)
}

func (s *fakeStorage) Edit(_ context.Context, e plant.Edit) (outcome plant.Outcome, err error) {
	if e.To == nil {
		outcome, err = plant.Removed, s.call("Remove", "%s %d %s", e.Store, e.ID, describe(e.Seen))
	} else {
		to := e.To.AppendJSON(nil)
		outcome, err = plant.Replaced, s.call("Replace", "%s %d %s %s", e.Store, e.ID, to, describe(e.Seen))
	}
	switch {
	case errors.Is(err, plant.ErrNotFound):
		return plant.Absent, nil
	case errors.Is(err, plant.ErrChanged):
		return plant.Changed, nil
	}
	return outcome, err
}

func describe(seen *plant.Content) string {
	if seen == nil {
		return "any"
	}
	return string(seen.AppendJSON(nil))
}

// noContentHooks are webhooks whose operations succeed without a body.
type noContentHooks struct{}

func (noContentHooks) Add(Call) (any, error)          { return nil, nil }
func (noContentHooks) List(Call) (any, error)         { return nil, nil }
func (noContentHooks) Get(Call) (any, error)          { return nil, nil }
func (noContentHooks) Change(Call) (any, error)       { return nil, nil }
func (noContentHooks) Remove(Call) (any, error)       { return nil, nil }
func (noContentHooks) Rotate(Call) (any, error)       { return nil, nil }
func (noContentHooks) Deliveries(Call) (any, error)   { return nil, nil }
func (noContentHooks) Replay(Call) (any, error)       { return nil, nil }
func (noContentHooks) ReplayFailed(Call) (any, error) { return nil, nil }
func (noContentHooks) Pull(Call) (any, error)         { return nil, nil }
func (noContentHooks) Acknowledge(Call) (any, error)  { return nil, nil }

// newAPI returns an API with defaults for what deps leaves out, and its log.
func newAPI(cfg Config, deps Dependencies) (*API, *bytes.Buffer) {
	log := new(bytes.Buffer)
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 64 << 10
	}
	if deps.Auth == nil {
		deps.Auth = authenticator(bearers)
	}
	if deps.Connections == nil {
		deps.Connections = oneOwner{}
	}
	deps.Log = slog.New(slog.NewJSONHandler(log, nil))
	return New(cfg, deps), log
}

// newStorageAPI returns an API on a storage.
func newStorageAPI(s *fakeStorage) *API {
	a, _ := newAPI(Config{}, Dependencies{Create: s.Create, Edit: s.Edit, Reader: s})
	return a
}

// send serves one request. The headers alternate between names and values.
func send(a http.Handler, method, target string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, body)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// wantAbandoned sends a request whose client leaves, and checks that its connection is closed.
func wantAbandoned(t *testing.T, a http.Handler, method, target string) {
	t.Helper()
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recover() = %v, want %v", p, http.ErrAbortHandler)
		}
	}()
	w := send(a, method, target, nil)
	t.Errorf("response %d %s to a client that has left", w.Code, w.Body)
}

// wantResponse checks the whole body of a response, and that its length is announced.
func wantResponse(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status || w.Body.String() != body {
		t.Errorf("response %d %.300s\nwant     %d %.300s", w.Code, w.Body, status, body)
	}
	h := w.Header()
	if body != "" && (h.Get("Content-Type") != "application/json" || h.Get("Content-Length") != fmt.Sprint(len(body))) {
		t.Errorf("Content-Type %q, Content-Length %q, body of %d bytes",
			h.Get("Content-Type"), h.Get("Content-Length"), len(body))
	}
}

// wantError checks an Error response.
func wantError(t *testing.T, w *httptest.ResponseRecorder, number int, message string) {
	t.Helper()
	_, field, _ := strings.Cut(strings.TrimSuffix(w.Body.String(), `"}`), `","field":"`) // TestField checks it
	wantResponse(t, w, number/100, string(appendError(nil, int32(number), message, field)))
	h := w.Header()
	if got := h.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q of an Error", got)
	}
	if got := h.Get("Retry-After"); (got == "1") != (number/100 == 503) && number/100 != 429 {
		t.Errorf("Retry-After %q of error %d", got, number)
	}
}

// wantHeaders checks headers; the pairs alternate between names and values, "" for an absent header.
func wantHeaders(t *testing.T, w *httptest.ResponseRecorder, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		values := w.Header().Values(pairs[i])
		if len(values) == 0 {
			values = w.Header()[pairs[i]] // RateLimit is not in the canonical form of net/http
		}
		if got := strings.Join(values, "|"); got != pairs[i+1] {
			t.Errorf("%s: %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

// wantCalls checks what the handlers asked of the storage.
func wantCalls(t *testing.T, s *fakeStorage, calls ...string) {
	t.Helper()
	if !slices.Equal(s.calls, calls) {
		t.Errorf("calls of the store: %q\nwant %q", s.calls, calls)
	}
}
