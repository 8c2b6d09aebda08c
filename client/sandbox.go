package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Sandbox is a store that expires, such as one for a test, and a client of it.
type Sandbox struct {
	Client  *Client   `json:"-"`
	Store   string    `json:"store"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// WithSandbox sets the plants that a new sandbox has, "garden" for 12 or "empty", and its lifetime, from a minute to a
// day. The default is a garden for an hour.
func WithSandbox(seed string, lifetime time.Duration) Option {
	body, _ := json.Marshal(map[string]any{"seed": seed, "ttl": int(lifetime.Seconds())})
	return func(c *Client) { c.sandbox = body }
}

// NewSandbox creates a sandbox on a service that allows it, and needs no token. It is retried like Create: a sandbox
// whose response was lost expires. An *Error with the number 40402 means that the service has no sandboxes.
func NewSandbox(ctx context.Context, baseURL string, options ...Option) (*Sandbox, error) {
	c, err := New(baseURL, "none", options...)
	if err != nil {
		return nil, err
	}
	c.token = "" // until there is one
	resp, err := c.do(ctx, request{
		method: http.MethodPost, path: "sandboxes", body: c.sandbox, success: http.StatusCreated, idempotent: true,
	})
	if err != nil {
		return nil, err
	}
	s := &Sandbox{Client: c}
	if json.Unmarshal(resp.body, s) != nil || s.Token == "" {
		return nil, errNotPlantStore
	}
	c.token = s.Token
	return s, nil
}

// Close removes the sandbox. It takes no context, because the context of a test has ended when a cleanup calls Close.
func (s *Sandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := call[any](ctx, s.Client, http.MethodDelete, "sandbox", http.StatusNoContent, nil)
	return err
}
