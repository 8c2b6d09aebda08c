package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"plantstore/internal/token"
)

// Call is a request for an operation of sandboxes or webhooks.
type Call struct {
	context.Context
	Token    *token.Token // nil for a new sandbox
	Address  netip.Addr   // of the client
	Body     []byte       // empty if there is none
	Query    url.Values
	ID       string // of the endpoint in the path
	Delivery string // in the path

	Gone     <-chan struct{}             // closed when the client has closed its connection
	Stopping <-chan struct{}             // closed when the service stops: waiting requests must end
	Park     func() (resume func() bool) // see Connections.Park
}

// QueryInteger returns a parameter of the query: most if it is larger, or standard if it is absent. kind is an error of
// the catalogue.
func (c Call) QueryInteger(kind error, name string, least, most, standard int) (int, error) {
	if !c.Query.Has(name) {
		return standard, nil
	}
	n, err := strconv.ParseUint(c.Query.Get(name), 10, 63) // the largest number with ErrRange
	if err != nil && !errors.Is(err, strconv.ErrRange) || n < uint64(least) || len(c.Query[name]) > 1 {
		return 0, FailField(kind, name, "must be one integer of at least %d", least)
	}
	return int(min(n, uint64(most))), nil
}

// respond calls an operation and writes its response. An operation returns the body of the response, or nil for none.
func (a *API) respond(x *exchange, status int, do func(Call) (any, error)) error {
	r := x.request
	c := Call{
		Context: x.ctx, Token: x.token, Address: x.Address(), Query: x.query, ID: r.PathValue("id"),
		Delivery: r.PathValue("delivery"), Gone: r.Context().Done(), Stopping: a.deps.Stopping,
		Park: func() func() bool { return a.deps.Connections.Park(x.ctx) },
	}
	if r.Method == http.MethodPut || r.ContentLength != 0 || len(r.Header["Content-Type"]) > 0 {
		err := a.readBody(x)
		if e, ok := errors.AsType[*clientError](err); ok && x.token == nil {
			return e.kind // the message would repeat what a client without a token has sent
		}
		if err != nil {
			return err
		}
		c.Body = x.buf
	}
	content, err := do(c)
	if err != nil {
		return err
	}
	return writeContent(x, status, content)
}

// writeContent writes a response that must not be cached. It has no body if the content is nil.
func writeContent(x *exchange, status int, content any) error {
	x.Header().Set("Cache-Control", "no-store")
	if content == nil {
		x.WriteHeader(http.StatusNoContent)
		return nil
	}
	body, err := json.Marshal(content)
	if err == nil {
		err = x.reserve(len(body)) // until a slow client has read it
	}
	if err != nil {
		return err
	}
	writeJSON(x, status, body)
	return nil
}

// Webhooks are the operations of package webhook. Each returns the body of its response, or nil for none.
type Webhooks interface {
	Add(Call) (any, error)
	List(Call) (any, error)
	Get(Call) (any, error)
	Change(Call) (any, error)
	Remove(Call) (any, error)
	Rotate(Call) (any, error)
	Deliveries(Call) (any, error)
	Replay(Call) (any, error)
	ReplayFailed(Call) (any, error)
	Pull(Call) (any, error)
	Acknowledge(Call) (any, error)
}

// The errors of webhooks.
var (
	ErrWebhookBody      = errors.New("the body of the request is invalid")
	ErrWebhookQuery     = errors.New("a query parameter is invalid")
	ErrTooManyEndpoints = errors.New("there are too many webhook endpoints")
	ErrTarget           = errors.New("the address of the URL is not allowed")
	ErrReplaying        = errors.New("an earlier replay of the endpoint has not ended; retry later")
	ErrEvicted          = fmt.Errorf("the connection of a waiting request was evicted: %w", context.Canceled)
	errNoWebhooks       = errors.New("webhooks need SQLite, or PostgreSQL without Citus")
)

// hooked returns the handler of an operation of webhooks.
func (a *API) hooked(status int, do func(Webhooks, Call) (any, error)) handler {
	return func(x *exchange) error {
		if a.deps.Webhooks == nil {
			return errNoWebhooks
		}
		return a.respond(x, status, func(c Call) (any, error) { return do(a.deps.Webhooks, c) })
	}
}
