package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// Sandbox is what package sandbox adds to the API. The first methods are the operations: each returns the body of its
// response, or nil for none.
type Sandbox interface {
	Create(Call) (any, error)
	Remove(Call) (any, error)
	Reset(Call) (any, error)
	Faults(Call) (any, error)
	SetFaults(Call) (any, error)
	ClearFaults(Call) (any, error)
	Requests(Call) (any, error)
	ClearRequests(Call) (any, error)

	// Fault returns the fault of a request for plants, or nil.
	Fault(store string, r *http.Request, route string) (*Fault, error)
	// Record adds a request to the journal of its sandbox. The entry has its id, the time, the first KeptBody bytes of the
	// body, and how the request ended.
	Record(store string, r *http.Request, e Entry)
}

// Fault is a failure that a client of a sandbox asks for.
type Fault struct {
	Err      error         // in place of the response; nil for none, see ErrorOf
	Delay    time.Duration // before the request is executed, or before its response is sent
	Drop     bool          // the connection is closed without a response
	Truncate bool          // half of the response is sent
	After    bool          // the request is executed first
	Text     string        // the fault as a preference
}

// Entry is a request in the journal of a sandbox, and how it ended.
type Entry struct {
	Number    int64       `json:"number"`
	Time      time.Time   `json:"time"`
	ID        string      `json:"id"`
	Method    string      `json:"method"`
	Path      string      `json:"path"`
	Query     string      `json:"query,omitzero"`
	Headers   http.Header `json:"headers"`
	Body      string      `json:"body,omitzero"`
	Encoding  string      `json:"encoding,omitzero"`
	Truncated bool        `json:"truncated,omitzero"`
	Status    int         `json:"status"`         // 0: the connection was closed without a response
	Error     int32       `json:"error,omitzero"` // the number of the failure
	Fault     string      `json:"fault,omitzero"` // its Text
}

// KeptBody is how much of a body a sandbox receives: 8 KiB, and a byte that shows whether there is more.
const KeptBody = 8<<10 + 1

// The errors of sandboxes.
var (
	ErrSandboxBody  = errors.New("the body of a new sandbox is invalid: send none, or an object with seed and ttl")
	ErrSandboxFull  = errors.New("the sandbox is full: remove plants, or reset it")
	ErrPreference   = errors.New("the Prefer header has an invalid fault")
	ErrRules        = errors.New("the rules are invalid")
	ErrJournalQuery = errors.New("limit and before must be integers of at least 1")
	ErrSandboxRate  = errors.New("the address has created too many sandboxes")
	ErrWaiting      = errors.New("too many requests are waiting")
	ErrNoSandbox    = errors.New("there are too many sandboxes, or too little space for them; retry later")
	errNotSandbox   = errors.New("the operation needs the token of a sandbox: create one with POST /sandboxes")
	errGateway      = errors.New("a gateway received no valid response")
	errGatewayTime  = errors.New("a gateway received no response in time")
	errDropped      = fmt.Errorf("a fault of the sandbox closed the connection: %w", context.Canceled)
)

// sandboxed is the handler of an operation of sandboxes.
func (a *API) sandboxed(status int, do func(Sandbox, Call) (any, error)) handler {
	return func(x *exchange) error {
		switch {
		case x.token == nil:
			x.memory = a.memory.Claim(token.Hash{})
		case !x.token.Sandbox:
			return errNotSandbox
		default:
			x.Header().Set("Sandbox-Process", a.process)
			x.Header().Add("Access-Control-Expose-Headers", "Sandbox-Process")
		}
		return a.respond(x, status, func(c Call) (any, error) { return do(a.deps.Sandbox, c) })
	}
}

// identify finds the sandbox of a request whose path or method is wrong.
func (a *API) identify(x *exchange) error {
	t, err := a.deps.Auth.Authenticate(x.ctx, x.request.Header["Authorization"], x)
	if err != nil || !t.Sandbox {
		return nil
	}
	x.token = t
	x.keepBody()
	return a.limitRate(x, false)
}

// injected reports whether the request had a fault, and the service itself did not fail.
func (x *exchange) injected() bool {
	if x.fault == "" || x.cause == nil {
		return x.fault != ""
	}
	f, _ := classify(x.cause)
	return f.Status() < 500
}

func (x *exchange) inSandbox() bool { return x.token != nil && x.token.Sandbox }

// keepBody reads the beginning of the body for the journal. The handler reads it again.
func (x *exchange) keepBody() {
	body := x.request.Body
	x.sent, _ = io.ReadAll(io.LimitReader(body, KeptBody)) // body returns its error again
	x.request.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(x.sent), body), body}
}

func (a *API) record(x *exchange, f Failure) {
	status := x.status
	if status == statusAbandoned {
		status = 0
	}
	a.deps.Sandbox.Record(x.token.Store, x.request, Entry{
		ID: x.id, Time: x.start, Body: string(x.sent), Status: status, Error: f.Number, Fault: x.fault,
	})
}

// Delayed requests hold connections, so they are few, and their connections can be evicted.
const (
	maxDelayed   = 64
	maxDelayedOf = 4 // in one sandbox

	bodyTime = 30 * time.Second // for the rest of a body, after a delay
)

// handleInSandbox calls the handler of a request for plants, with the fault that its client asks for.
func (a *API) handleInSandbox(x *exchange, route Route) error {
	f, err := a.deps.Sandbox.Fault(x.token.Store, x.request, route.Path)
	if err != nil {
		return err
	}
	if f == nil {
		return route.handle(x)
	}
	if f.Delay > 0 {
		leave, ok := a.delayed.Enter(x.token.Hash)
		if !ok {
			return &rate.Exceeded{Why: ErrWaiting, Wait: time.Second}
		}
		defer leave()
	}
	x.fault = f.Text
	x.Header().Add("Preference-Applied", f.Text)
	handle := func(x *exchange) error {
		x.cause = route.handle(x)
		return x.cause
	}
	if f.After {
		return a.respondWithFault(x, handle, f)
	}
	if err := a.delay(x, f.Delay); err != nil {
		return err
	}
	switch {
	case f.Drop:
		return errDropped
	case f.Err == errMethod:
		x.Header().Set("Allow", a.methods[a.deps.Prefix+route.Path])
		return f.Err
	case f.Err != nil:
		return f.Err
	case f.Truncate && route.Scope != token.Read: // a change that is not made has no response but an error
		return a.respondWithFault(x, func(*exchange) error { return storage.ErrBusy }, f)
	case f.Truncate:
		return a.respondWithFault(x, handle, f)
	}
	return handle(x)
}

// respondWithFault calls a handler and injects a fault in place of its response.
func (a *API) respondWithFault(x *exchange, handle handler, f *Fault) error {
	w, held := x.ResponseWriter, &heldResponse{ResponseWriter: x.ResponseWriter}
	err := func() error {
		x.ResponseWriter = held
		defer func() { x.ResponseWriter = w }() // also if the handler panics
		err := handle(x)
		if err != nil && f.Truncate && x.status == 0 {
			x.writeFailure(err)
		}
		return err
	}()
	x.status = 0
	if f.After {
		if err := a.delay(x, f.Delay); err != nil {
			return err
		}
	}
	switch {
	case f.Drop, f.Truncate && (len(held.body) == 0 || x.request.Method == http.MethodHead):
		return errDropped
	case f.Err != nil:
		for _, name := range []string{"ETag", "Link", "Plants-Count"} {
			x.Header().Del(name)
		}
		x.Header().Set("Preference-Applied", f.Text)
		return f.Err
	case f.Truncate:
		x.WriteHeader(held.status)
		x.Write(held.body[:len(held.body)/2])
		http.NewResponseController(w).Flush()
		return errors.Join(errDropped, err) // the response is incomplete
	case err != nil:
		return err
	}
	x.WriteHeader(held.status)
	x.Write(held.body)
	return nil
}

// heldResponse keeps a response until a fault is injected.
type heldResponse struct {
	http.ResponseWriter
	status int
	body   []byte
}

func (h *heldResponse) WriteHeader(status int) { h.status = status }
func (h *heldResponse) Write(b []byte) (int, error) {
	h.body = append(h.body, b...)
	return len(b), nil
}

// delay waits until a delay is over or the service stops. It returns an error if the connection was evicted meanwhile.
// The rest of the body gets the time that it would have had without the delay.
func (a *API) delay(x *exchange, d time.Duration) error {
	if d == 0 {
		return nil
	}
	http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(d + bodyTime))
	resume := a.deps.Connections.Park(x.ctx)
	select {
	case <-time.After(d):
	case <-a.deps.Stopping:
	}
	if !resume() {
		return errDropped
	}
	return nil
}
