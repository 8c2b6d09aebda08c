// Package httpapi is the HTTP API: every route in one table, one adapter around every handler,
// and one table that maps errors to responses.
package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/rate"
	"plantstore/internal/share"
	"plantstore/internal/token"
)

// Authenticator finds the token that the Authorization headers of a request identify.
type Authenticator interface {
	Authenticate(ctx context.Context, headers []string, from token.Source) (*token.Token, error)
}

// Reader reads plants; storage.Plants has its promises.
type Reader interface {
	Get(ctx context.Context, store string, id int64) (plant.Plant, error)
	List(ctx context.Context, store string, after *int64, limit int) ([]plant.Plant, error)
	Count(ctx context.Context, store string) (int64, error)
}

// Connections knows the connections that requests arrive on, by the context of a request.
type Connections interface {
	// SetToken records whose request the connection carries.
	SetToken(ctx context.Context, hash [32]byte)
	// Last reports whether the response must be the last of its connection.
	Last(ctx context.Context) bool
	// Tokens returns how many tokens have connections.
	Tokens() int
	// Park lets the connection be evicted until resume is called, which reports whether it was not.
	Park(ctx context.Context) (resume func() bool)
}

// Config is what an operator sets.
type Config struct {
	MaxBody   int64      // largest request body, in bytes
	AccessLog AccessLog  // requests to log
	Origins   Origins    // web pages that may use the API
	Proxies   Proxies    // trusted to report the address of a client
	Rate      rate.Limit // of tokens without one of their own; zero is unlimited
}

// Create and Edit return once a plant is stored, or changed, in a way that would survive power loss.
type (
	Create func(context.Context, plant.Record) (plant.Outcome, error)
	Edit   func(context.Context, plant.Edit) (plant.Outcome, error)
)

// Dependencies are the parts of the service that an API is built on.
type Dependencies struct {
	Auth        Authenticator
	Reader      Reader
	Connections Connections
	Log         *slog.Logger
	Mask        token.Mask    // hides credentials in the log
	Observe     func(Request) // called at the end of every request; may be nil

	Create Create
	Edit   Edit

	Prefix    string // path under which the API is mounted: "" or "/some/prefix"
	Queue     int    // calls that Create queues, and Edit; 0 does not divide them between tokens
	MaxMemory int64  // bytes of large bodies and pages in memory; 0 is unlimited

	Pages map[string]http.Handler // documents and pages for browsers, by mux pattern

	Sandbox  Sandbox         // nil for no sandboxes
	Webhooks Webhooks        // nil on a cluster
	Stopping <-chan struct{} // closed when requests that are delayed on purpose must end; may be nil
}

// Request is what is known at the end of a request, for metrics and traces.
type Request struct {
	Context context.Context
	Route   string // pattern of the route without the prefix, or unmatched or preflight
	Method  string // as the client sent it
	Status  int
	Number  int32 // of the failure; 0 if there is none
	Took    time.Duration

	Injected bool // it has a fault that a client of a sandbox asked for
}

// The routes of requests that are not for a path of the service.
const (
	unmatched = "unmatched" // the path does not exist
	preflight = "preflight" // a browser asks what a page may send
)

// API is the http.Handler of the service.
type API struct {
	cfg     Config
	deps    Dependencies
	mux     *http.ServeMux
	noRoute http.Handler            // for paths that do not exist
	allowed http.Handler            // for preflight requests
	methods map[string]string       // Allow header of each path pattern
	rates   *rate.Table[token.Hash] // what each token has used of its rate
	creates share.Pool[token.Hash]  // creates in flight
	edits   share.Pool[token.Hash]  // replaces and removes in flight
	memory  share.Pool[token.Hash]  // bytes of large bodies and pages

	counts      *share.Slots[token.Hash]  // counts in flight or waiting
	searches    *share.Slots[token.Hash]  // searches in flight or waiting
	waiting     share.Waiters[token.Hash] // searches and counts, in flight or not
	statusRates *rate.Table[token.Hash]   // requests of GET /token
	delayed     share.Waiters[token.Hash] // requests of sandboxes
	process     string                    // random: this process alone has the faults and journals of its requests
	maxExamined int                       // plants that a search examines before its page ends
}

// Route is one operation of the service.
type Route struct {
	Method, Path string
	Scope        token.Scope // zero: needs no credential
	handle       handler
	unmetered    bool     // does not count against the rate of the token, but against statusRate
	parameters   []string // of the query string; others are refused
	Sandbox      bool     // exists only where there are sandboxes
	wrong        bool     // the path or the method does not exist
	quiet        bool     // its requests are not logged
}

// AnyScope is the Scope of a route that needs a token, whatever its scopes are.
const AnyScope token.Scope = 1 << 7

// handler writes the response to a request, or returns an error that the adapter writes.
type handler func(x *exchange) error

// routes is the whole API; nothing registers itself elsewhere.
func (a *API) routes() []Route {
	return []Route{
		{Method: "POST", Path: "/plants", Scope: token.Create, handle: a.createPlant},
		{Method: "GET", Path: "/plants", Scope: token.Read, handle: a.listPlants,
			parameters: []string{"limit", "after", "tag", "q"}},
		{Method: "GET", Path: "/plants/{id}", Scope: token.Read, handle: a.getPlant},
		{Method: "PUT", Path: "/plants/{id}", Scope: token.Write, handle: a.replacePlant},
		{Method: "DELETE", Path: "/plants/{id}", Scope: token.Write, handle: a.removePlant},
		{Method: "GET", Path: "/token", Scope: AnyScope, handle: a.getToken, unmetered: true},

		{Method: "POST", Path: "/webhooks", Scope: token.Webhooks, handle: a.hooked(http.StatusCreated, Webhooks.Add)},
		{Method: "GET", Path: "/webhooks", Scope: token.Webhooks, handle: a.hooked(200, Webhooks.List)},
		{Method: "GET", Path: "/webhooks/{id}", Scope: token.Webhooks, handle: a.hooked(200, Webhooks.Get)},
		{Method: "PUT", Path: "/webhooks/{id}", Scope: token.Webhooks, handle: a.hooked(200, Webhooks.Change)},
		{Method: "DELETE", Path: "/webhooks/{id}", Scope: token.Webhooks, handle: a.hooked(0, Webhooks.Remove)},
		{Method: "POST", Path: "/webhooks/{id}/rotate", Scope: token.Webhooks, handle: a.hooked(200, Webhooks.Rotate)},
		{Method: "GET", Path: "/webhooks/{id}/deliveries", Scope: token.Webhooks, handle: a.hooked(200, Webhooks.Deliveries),
			parameters: []string{"status", "before", "limit"}},
		{Method: "POST", Path: "/webhooks/{id}/deliveries/{delivery}/replay", Scope: token.Webhooks,
			handle: a.hooked(http.StatusAccepted, Webhooks.Replay)},
		{Method: "POST", Path: "/webhooks/{id}/replay", Scope: token.Webhooks,
			handle: a.hooked(http.StatusAccepted, Webhooks.ReplayFailed)},
		{Method: "GET", Path: "/webhooks/{id}/pull", Scope: token.Webhooks, handle: a.hooked(200, Webhooks.Pull),
			parameters: []string{"wait"}},
		{Method: "POST", Path: "/webhooks/{id}/ack", Scope: token.Webhooks, handle: a.hooked(0, Webhooks.Acknowledge)},

		{Method: "POST", Path: "/sandboxes", handle: a.sandboxed(http.StatusCreated, Sandbox.Create), Sandbox: true},
		{Method: "DELETE", Path: "/sandbox", Scope: AnyScope, handle: a.sandboxed(0, Sandbox.Remove), Sandbox: true},
		{Method: "POST", Path: "/sandbox/reset", Scope: AnyScope, handle: a.sandboxed(0, Sandbox.Reset), Sandbox: true},
		{Method: "GET", Path: "/faults", Scope: AnyScope, handle: a.sandboxed(200, Sandbox.Faults), Sandbox: true},
		{Method: "PUT", Path: "/faults", Scope: AnyScope, handle: a.sandboxed(200, Sandbox.SetFaults), Sandbox: true},
		{Method: "DELETE", Path: "/faults", Scope: AnyScope, handle: a.sandboxed(0, Sandbox.ClearFaults), Sandbox: true},
		{Method: "GET", Path: "/requests", Scope: AnyScope, handle: a.sandboxed(200, Sandbox.Requests), Sandbox: true,
			parameters: []string{"limit", "before"}},
		{Method: "DELETE", Path: "/requests", Scope: AnyScope, handle: a.sandboxed(0, Sandbox.ClearRequests), Sandbox: true},
	}
}

// Routes lists the operations of the service.
func Routes() []Route { return new(API).routes() }

// New returns the API.
func New(cfg Config, deps Dependencies) *API {
	contended := func() bool { return deps.Connections.Tokens() > 1 }
	a := &API{
		cfg: cfg, deps: deps, mux: http.NewServeMux(), methods: map[string]string{},
		rates: rate.NewTable[token.Hash](maxLimited, time.Now),
		creates: share.Pool[token.Hash]{
			Capacity: int64(deps.Queue), CapacityEnforcedElsewhere: true, Contended: contended,
		},
		edits: share.Pool[token.Hash]{
			Capacity: int64(deps.Queue), CapacityEnforcedElsewhere: true, Contended: contended,
		},
		memory:      share.Pool[token.Hash]{Capacity: deps.MaxMemory},
		counts:      share.NewSlots[token.Hash](maxCounts),
		searches:    share.NewSlots[token.Hash](maxSearches),
		waiting:     share.Waiters[token.Hash]{PerOwner: maxWaitingOf, Total: maxWaiting},
		statusRates: rate.NewTable[token.Hash](maxLimited, time.Now),
		delayed:     share.Waiters[token.Hash]{PerOwner: maxDelayedOf, Total: maxDelayed},
		process:     NewRequestID(),
		maxExamined: maxExamined,
	}
	methods := map[string][]string{}
	for _, route := range a.routes() {
		if route.Sandbox && deps.Sandbox == nil {
			continue
		}
		pattern := a.deps.Prefix + route.Path
		a.mux.Handle(route.Method+" "+pattern, a.adapt(route))
		methods[pattern] = append(methods[pattern], route.Method)
		if route.Method == http.MethodGet {
			methods[pattern] = append(methods[pattern], http.MethodHead)
		}
	}
	for pattern, page := range a.deps.Pages {
		path := strings.TrimPrefix(pattern, "GET ")
		a.mux.Handle(pattern, a.adapt(Route{Path: a.withoutPrefix(path), handle: serve(page), quiet: true}))
		methods[path] = []string{http.MethodGet, http.MethodHead}
	}
	for pattern, allowed := range methods {
		slices.Sort(allowed)
		a.methods[pattern] = strings.Join(allowed, ", ")
		wrong := Route{Path: a.withoutPrefix(pattern), handle: notAllowed(a.methods[pattern]), wrong: true}
		a.mux.Handle(pattern, a.adapt(wrong))
	}
	a.allowed = a.adapt(Route{Path: preflight, handle: noContent, quiet: true})
	a.noRoute = a.adapt(Route{Path: unmatched, handle: notFound, wrong: true})
	a.mux.Handle("/", a.noRoute)
	return a
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Nothing after a request whose end is ambiguous is read as another request: a proxy in front of the service
	// may see the end of chunks elsewhere, HTTP/1.0 has no chunks, and what follows a CONNECT is not HTTP.
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) || r.Method == http.MethodConnect {
		w.Header().Set("Connection", "close")
	}
	switch {
	case a.cors(w, r):
		a.allowed.ServeHTTP(w, r)
	case !isClean(r.URL.Path): // the mux would redirect, with a page of its own
		a.noRoute.ServeHTTP(w, r)
	default:
		a.mux.ServeHTTP(w, r)
	}
}

func (a *API) withoutPrefix(pattern string) string {
	return cmp.Or(strings.TrimPrefix(pattern, a.deps.Prefix), "/")
}

func isClean(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "//") && !strings.Contains(path, "/./") &&
		!strings.Contains(path, "/../") && !strings.HasSuffix(path, "/.") && !strings.HasSuffix(path, "/..")
}

// notFound and notAllowed, like every response to a client without a valid token, repeat nothing of the request.
func notFound(*exchange) error { return errNoRoute }

func notAllowed(allow string) handler {
	return func(x *exchange) error {
		x.Header().Set("Allow", allow)
		return Failf(errMethod, "the path does not support this method; use %s", allow)
	}
}

func noContent(x *exchange) error {
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// serve is the handler of a page for browsers, or of a health check.
func serve(page http.Handler) handler {
	return func(x *exchange) error {
		page.ServeHTTP(x, x.request)
		x.WriteHeader(http.StatusOK) // unless the page has written
		return nil
	}
}

var jsonType = []string{"application/json"}

// writeJSON writes a whole response. A failed write means that the client has disconnected.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}
