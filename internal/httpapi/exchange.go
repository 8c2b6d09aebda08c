package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"plantstore/internal/share"
	"plantstore/internal/token"
)

// exchange is a request and its response: all that a handler and the adapter around it need. The next exchange uses its
// buffer again, because a new one for each request would be a large part of the garbage of a create.
type exchange struct {
	http.ResponseWriter
	request *http.Request
	ctx     context.Context // does not end with the connection: see adapt
	api     *API
	id      string
	start   time.Time
	status  int // zero until the response has started
	buf     []byte
	query   url.Values   // nil if there is none
	token   *token.Token // nil where the route needs no credential
	memory  share.Claim[token.Hash]
	sent    []byte // the beginning of the body, in a sandbox
	fault   string // that was injected, in a sandbox
	cause   error  // of the handler, in place of which a fault was injected
}

var exchanges = sync.Pool{New: func() any { return &exchange{buf: make([]byte, 0, 1024)} }}

// statusAbandoned is the status in metrics, traces and the log of a request whose client has closed its connection
// before there was a response. nginx uses it too.
const statusAbandoned = 499

func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	x.status = status
	if x.api.deps.Connections.Last(x.ctx) {
		x.Header().Set("Connection", "close")
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(b []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	return x.ResponseWriter.Write(b)
}

// adapt does what every handler needs: request id, credential, errors, panics and the access log.
func (a *API) adapt(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchanges.Get().(*exchange)
		x.ResponseWriter, x.request, x.api, x.start, x.status = w, r, a, time.Now(), 0
		// A client that closes its sending side after a request still reads the response. Only what may take long,
		// searches and counts, uses the context of the request itself.
		x.ctx = context.WithoutCancel(r.Context())
		x.setID(NewRequestID())

		err := a.call(x, route)
		var f Failure
		complete := err == nil
		if err != nil && x.status == 0 {
			f, complete = x.writeFailure(err)
		} else if err != nil { // the response was cut off
			f, _ = classify(cmp.Or(x.cause, err))
		}
		a.finish(x, route, f, err)
		x.memory.Release()
		if !complete { // closing the connection shows the client that the response is incomplete
			panic(http.ErrAbortHandler)
		}
		x.ResponseWriter, x.request, x.ctx, x.query, x.token = nil, nil, nil, nil, nil
		x.sent, x.fault, x.cause = nil, "", nil
		if cap(x.buf) <= small { // a larger buffer counts as memory in use
			exchanges.Put(x)
		}
	})
}

// finish reports a request whose response was written or cut off.
func (a *API) finish(x *exchange, route Route, f Failure, err error) {
	took := time.Since(x.start)
	if a.deps.Observe != nil {
		a.deps.Observe(Request{x.ctx, route.Path, x.request.Method, x.status, f.Number, took, x.injected()})
	}
	if x.inSandbox() && !route.Sandbox && !route.unmetered && route.Scope != token.Webhooks {
		a.record(x, f)
	}
	if !route.quiet {
		a.log(x, route.Path, f, err, took)
	}
}

// call runs a handler after authorization. A panic becomes an error.
func (a *API) call(x *exchange, route Route) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			x.cause = err
		}
	}()
	if route.Scope != 0 {
		if err := a.authorize(x, route); err != nil {
			return err
		}
	} else if route.wrong && a.deps.Sandbox != nil {
		if err := a.identify(x); err != nil {
			return err
		}
	}
	if err := x.parseQuery(route); err != nil {
		return err
	}
	if x.inSandbox() && route.Scope&token.PlantScopes != 0 {
		return a.handleInSandbox(x, route)
	}
	return route.handle(x)
}

func (a *API) authorize(x *exchange, route Route) error {
	t, err := a.deps.Auth.Authenticate(x.ctx, x.request.Header["Authorization"], x)
	if err != nil {
		return err
	}
	x.token, x.memory = t, a.memory.Claim(t.Hash)
	if t.Sandbox {
		x.keepBody()
	}
	if sent := x.request.Header["X-Request-Id"]; isRequestID(sent) {
		x.setID(sent[0])
	}
	if err := a.limitRate(x, route.unmetered); err != nil {
		return err
	}
	if !t.Sandbox { // anyone can get one, so its connections are those of an address
		a.deps.Connections.SetToken(x.ctx, t.Hash)
	}
	if scope := route.Scope; scope != AnyScope && t.Scopes&scope == 0 {
		challenge := fmt.Sprintf(`Bearer realm="plantstore", error="insufficient_scope", scope=%q`, scope)
		x.Header().Set("WWW-Authenticate", challenge)
		scopes := cmp.Or(t.Scopes.String(), "no scope")
		return Failf(token.ErrScope, "the operation needs the scope %s, but the token has %s", scope, scopes)
	}
	return nil
}

// parseQuery refuses a parameter that the operation does not have: a mistyped dry_run must not remove a plant.
func (x *exchange) parseQuery(route Route) (err error) {
	text := x.request.URL.RawQuery
	if text == "" || route.Method == "" { // "": a page, or the path or the method is wrong
		return nil
	}
	if x.query, err = url.ParseQuery(text); err != nil {
		return errBadQuery
	}
	for _, name := range slices.Sorted(maps.Keys(x.query)) {
		switch all := route.parameters; {
		case len(all) == 0: // the client may have no token, so its text is not repeated
			return Failf(errParameter, "the operation has no query parameters; omit the query string")
		case !slices.Contains(all, name):
			last := len(all) - 1
			known := strings.TrimPrefix(strings.Join(all[:last], ", ")+" or "+all[last], " or ")
			return Failf(errParameter, "the query parameter %.32q is unknown; use %s", name, known)
		}
	}
	return nil
}

func (x *exchange) setID(id string) {
	x.id = id
	x.Header()["X-Request-Id"] = []string{id}
}

// isRequestID reports whether a client with a valid token has sent one id that is safe in a log and a header.
func isRequestID(sent []string) bool {
	return len(sent) == 1 && len(sent[0]) > 0 && len(sent[0]) <= 64 && strings.Trim(sent[0], idCharacters) == ""
}

const idCharacters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:/+="

// NewRequestID returns a random id of an exchange.
func NewRequestID() string { return strconv.FormatUint(rand.Uint64()|1<<63, 32) }
