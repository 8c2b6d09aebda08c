package httpapi

import (
	"context"
	"errors"
	"fmt"
)

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
