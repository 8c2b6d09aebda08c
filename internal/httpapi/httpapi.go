// Package httpapi is the HTTP surface: every route in one table, one adapter around every
// handler, and one table that turns errors into answers.
package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/token"
)

// Authenticator says whose credential the Authorization header lines hold.
type Authenticator interface {
	Authenticate(ctx context.Context, headers []string) (token.Token, error)
}

// Creator stores a plant and returns once that would survive power loss.
type Creator interface {
	Create(ctx context.Context, record plant.Record) (plant.Outcome, error)
}

// Options make an API.
type Options struct {
	Prefix    string // the path under which the API is mounted: "" or "/some/prefix"
	MaxBody   int64  // bytes of a request body at most
	AccessLog AccessLog
	Slow      time.Duration // a request that takes longer is logged as a failure is
	Log       *slog.Logger

	Auth    Authenticator
	Creator Creator

	DescriptionJSON, DescriptionYAML []byte // the published OpenAPI description
}

// API answers requests. It is an http.Handler.
type API struct {
	prefix    string
	maxBody   int64
	accessLog AccessLog
	slow      time.Duration
	log       *slog.Logger
	auth      Authenticator
	creator   Creator
	mux       *http.ServeMux
}

// Route is one operation of the service.
type Route struct {
	Method, Path string
	Scope        token.Scope // zero: no credential is asked for
	handle       handler
}

// handler answers a request, or returns an error for the adapter to answer with.
type handler func(x *exchange, r *http.Request, t token.Token) error

// routes is the whole surface; nothing registers itself elsewhere.
func (a *API) routes(o Options) []Route {
	return []Route{
		{"POST", "/plants", token.Create, a.createPlant},
		{"GET", "/openapi.json", 0, serve("application/json", o.DescriptionJSON)},
		{"GET", "/openapi.yaml", 0, serve("application/yaml", o.DescriptionYAML)},
	}
}

// Routes lists the surface.
func Routes() []Route { return new(API).routes(Options{}) }

// New makes the API.
func New(o Options) *API {
	a := &API{
		prefix: o.Prefix, maxBody: o.MaxBody, accessLog: o.AccessLog, slow: o.Slow, log: o.Log,
		auth: o.Auth, creator: o.Creator, mux: http.NewServeMux(),
	}
	methods := map[string][]string{}
	for _, route := range a.routes(o) {
		a.mux.Handle(route.Method+" "+a.prefix+route.Path, a.adapt(route.handle, route.Scope))
		methods[route.Path] = append(methods[route.Path], route.Method)
		if route.Method == "GET" {
			methods[route.Path] = append(methods[route.Path], "HEAD")
		}
	}
	for path, allowed := range methods {
		slices.Sort(allowed)
		a.mux.Handle(a.prefix+path, a.adapt(notAllowed(strings.Join(allowed, ", ")), 0))
	}
	a.mux.Handle("/", a.adapt(notFound, 0))
	return a
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isClean(r.URL.Path) { // the mux would redirect, with a page of its own
		a.adapt(notFound, 0).ServeHTTP(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}

func isClean(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "//") && !strings.Contains(path, "/./") &&
		!strings.Contains(path, "/../") && !strings.HasSuffix(path, "/.") && !strings.HasSuffix(path, "/..")
}

func notFound(_ *exchange, r *http.Request, _ token.Token) error {
	return fmt.Errorf("%w: %.100q", errNoRoute, r.URL.Path)
}

func notAllowed(allow string) handler {
	return func(x *exchange, r *http.Request, _ token.Token) error {
		x.Header().Set("Allow", allow)
		return fmt.Errorf("%w: expected %s, found %.16q", errMethod, allow, r.Method)
	}
}

func serve(contentType string, content []byte) handler {
	return func(x *exchange, r *http.Request, _ token.Token) error {
		x.Header().Set("Content-Type", contentType)
		x.Header().Set("Content-Length", strconv.Itoa(len(content)))
		x.Write(content)
		return nil
	}
}

var jsonType = []string{"application/json"}

// writeJSON writes a whole answer. A client that is gone by then can't be told anything.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}
