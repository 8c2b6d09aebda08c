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
	"plantstore/internal/rate"
	"plantstore/internal/token"
)

// Authenticator says whose credential the Authorization header lines of a request hold.
type Authenticator interface {
	Authenticate(ctx context.Context, headers []string, from token.Source) (*token.Token, error)
}

// Creator stores a plant and returns once that would survive power loss.
type Creator interface {
	Create(ctx context.Context, record plant.Record) (plant.Outcome, error)
}

// Reader reads plants: see store.Plants for what it promises.
type Reader interface {
	Get(ctx context.Context, store string, id int64) (plant.New, error)
	List(ctx context.Context, store string, after *int64, limit int) ([]plant.New, error)
	Count(ctx context.Context, store string) (int64, error)
}

// Editor changes plants that are there: see store.Plants.
type Editor interface {
	Replace(ctx context.Context, store string, id int64, to plant.Plant, seen *plant.Plant) error
	Remove(ctx context.Context, store string, id int64, seen *plant.Plant) error
}

// Options make an API.
type Options struct {
	Prefix    string // the path under which the API is mounted: "" or "/some/prefix"
	MaxBody   int64  // bytes of a request body at most
	AccessLog AccessLog
	Slow      time.Duration // a request that takes longer is logged as a failure is
	Log       *slog.Logger
	Origins   Origins     // web pages that may use the API
	Proxies   Proxies     // who is believed about where a request comes from
	Rate      rate.Limit  // of tokens that have none of their own
	Stopping  func() bool // true when an answer is to be the last of its connection

	Admit   func(ctx context.Context, who token.Hash) (last bool) // told of a token's request; true when its connection is to end; may be nil
	MaxHeld int64                                                 // bytes of large bodies and pages in memory at once; 0 for any number

	Auth    Authenticator
	Creator Creator
	Reader  Reader
	Editor  Editor

	DescriptionJSON, DescriptionYAML []byte // the published OpenAPI description

	Pages map[string]http.Handler // what people see in a browser, by mux pattern
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
	reader    Reader
	editor    Editor
	origins   Origins
	proxies   Proxies
	rate      rate.Limit
	used      *rate.Table[token.Hash] // what each token has used of its rate
	stopping  func() bool
	mux       *http.ServeMux
	admit     func(context.Context, token.Hash) bool
	memory    memory
	counting  chan struct{}     // holds a token for each count under way
	methods   map[string]string // of each path pattern, as Allow lists them
}

// Route is one operation of the service.
type Route struct {
	Method, Path string
	Scope        token.Scope // zero: no credential is asked for
	handle       handler
}

// handler answers a request, or returns an error for the adapter to answer with.
type handler func(x *exchange, r *http.Request, t *token.Token) error

// routes is the whole surface; nothing registers itself elsewhere.
func (a *API) routes(o Options) []Route {
	return []Route{
		{"POST", "/plants", token.Create, a.createPlant},
		{"GET", "/plants", token.Read, a.listPlants},
		{"GET", "/plants/{id}", token.Read, a.getPlant},
		{"PUT", "/plants/{id}", token.Write, a.replacePlant},
		{"DELETE", "/plants/{id}", token.Write, a.removePlant},
		{"GET", "/openapi.json", 0, serve("application/json", o.DescriptionJSON)},
		{"GET", "/openapi.yaml", 0, serve("application/yaml", o.DescriptionYAML)},
	}
}

// Routes lists the surface.
func Routes() []Route { return new(API).routes(Options{}) }

// New makes the API.
func New(o Options) *API {
	a := &API{
		prefix: o.Prefix, maxBody: o.MaxBody, accessLog: o.AccessLog, slow: o.Slow, log: o.Log, origins: o.Origins, stopping: o.Stopping,
		auth: o.Auth, creator: o.Creator, reader: o.Reader, editor: o.Editor,
		proxies: o.Proxies, rate: o.Rate, used: rate.NewTable[token.Hash](maxLimited, time.Now),
		admit: o.Admit, memory: memory{most: o.MaxHeld, by: map[token.Hash]int64{}},
		mux: http.NewServeMux(), counting: make(chan struct{}, 2), methods: map[string]string{},
	}
	methods := map[string][]string{}
	for _, route := range a.routes(o) {
		pattern := a.prefix + route.Path
		a.mux.Handle(route.Method+" "+pattern, a.adapt(route.handle, route.Scope))
		methods[pattern] = append(methods[pattern], route.Method)
		if route.Method == http.MethodGet {
			methods[pattern] = append(methods[pattern], http.MethodHead)
		}
	}
	for pattern, page := range o.Pages {
		a.mux.Handle(pattern, page)
		methods[strings.TrimPrefix(pattern, "GET ")] = []string{http.MethodGet, http.MethodHead}
	}
	for pattern, allowed := range methods {
		slices.Sort(allowed)
		a.methods[pattern] = strings.Join(allowed, ", ")
		a.mux.Handle(pattern, a.adapt(notAllowed(a.methods[pattern]), 0))
	}
	a.mux.Handle("/", a.adapt(notFound, 0))
	return a
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Where the end of a request is open to doubt, nothing after it is read as another one: a proxy before us
	// may see the end of chunks elsewhere, HTTP/1.0 knows no chunks, and what follows a CONNECT is not HTTP.
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) || r.Method == http.MethodConnect || a.stopping() {
		w.Header().Set("Connection", "close")
	}
	switch {
	case a.cors(w, r):
	case !isClean(r.URL.Path): // the mux would redirect, with a page of its own
		a.adapt(notFound, 0).ServeHTTP(w, r)
	default:
		a.mux.ServeHTTP(w, r)
	}
}

// methodsOf lists the methods of the path that r asks about; none where there is no such path.
func (a *API) methodsOf(r *http.Request) string {
	_, pattern := a.mux.Handler(&http.Request{Method: http.MethodOptions, URL: r.URL, Host: r.Host})
	return a.methods[pattern]
}

func isClean(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "//") && !strings.Contains(path, "/./") &&
		!strings.Contains(path, "/../") && !strings.HasSuffix(path, "/.") && !strings.HasSuffix(path, "/..")
}

func notFound(_ *exchange, r *http.Request, _ *token.Token) error {
	return fmt.Errorf("%w: %.100q", errNoRoute, r.URL.Path)
}

func notAllowed(allow string) handler {
	return func(x *exchange, r *http.Request, _ *token.Token) error {
		x.Header().Set("Allow", allow)
		return fmt.Errorf("%w: expected %s, found %.16q", errMethod, allow, r.Method)
	}
}

func serve(contentType string, content []byte) handler {
	return func(x *exchange, r *http.Request, _ *token.Token) error {
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
