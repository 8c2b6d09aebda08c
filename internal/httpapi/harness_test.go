package httpapi

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

// quiet discards the log.
var quiet = slog.New(slog.DiscardHandler)

// oneOwner is connections that all belong to one owner and stay open.
type oneOwner struct{}

func (oneOwner) Identify(context.Context, [32]byte) bool { return false }
func (oneOwner) Owners() int                             { return 1 }
func (oneOwner) Draining() bool                          { return false }
func (oneOwner) CancelOnDisconnect(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// anybody accepts every request as one of a token with every scope.
type anybody struct{}

func (anybody) Authenticate(context.Context, []string, token.Source) (*token.Token, error) {
	return &token.Token{Store: "main", Scopes: token.AllScopes}, nil
}

// bearers takes every Authorization header for a token of its own.
type bearers struct{}

func (bearers) Authenticate(_ context.Context, headers []string, _ token.Source) (*token.Token, error) {
	return &token.Token{Hash: token.HashOf(headers[0]), Store: "main", Scopes: token.AllScopes}, nil
}

// creator is a Creator in one function.
type creator func(ctx context.Context, record plant.Record) (plant.Outcome, error)

func (c creator) Create(ctx context.Context, record plant.Record) (plant.Outcome, error) {
	return c(ctx, record)
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

// newAPI returns an API with defaults for what deps leaves out, and its log.
func newAPI(cfg Config, deps Dependencies) (*API, *bytes.Buffer) {
	log := new(bytes.Buffer)
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 64 << 10
	}
	if deps.Auth == nil {
		deps.Auth = anybody{}
	}
	if deps.Connections == nil {
		deps.Connections = oneOwner{}
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.NewJSONHandler(log, nil))
	}
	return New(cfg, deps), log
}
