package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"time"
)

// Webhook is an endpoint, which gets a delivery for each plant that is created in its store. The service sends the
// deliveries of a push endpoint to its URL. Pull returns the deliveries of a pull endpoint.
type Webhook struct {
	ID             string    `json:"id"`
	Kind           string    `json:"kind"` // push or pull
	URL            string    `json:"url,omitzero"`
	TTL            int       `json:"ttl,omitzero"` // a pull endpoint is removed after this many seconds without a Pull
	Description    string    `json:"description"`
	Created        time.Time `json:"created"`
	Disabled       bool      `json:"disabled"`
	DisabledAt     time.Time `json:"disabled_at,omitzero"`
	DisabledReason string    `json:"disabled_reason,omitzero"`
	Secret         string    `json:"secret,omitzero"` // only from AddWebhook and RotateWebhook
}

// Delivery is one plant for one endpoint. Try is one request for it.
type (
	Delivery struct {
		ID      string    `json:"id"` // the webhook-id of its requests
		Plant   int64     `json:"plant"`
		Status  string    `json:"status"` // waiting, replaying, delivered or failed
		Created time.Time `json:"created"`
		Next    time.Time `json:"next,omitzero"` // when the next try of a waiting delivery is due
		Tries   []Try     `json:"tries"`         // the last 20, oldest first
	}
	Try struct {
		Time   time.Time `json:"time"`
		Status int       `json:"status,omitzero"` // HTTP status of the response, if there was one
		MS     int64     `json:"ms"`
		Error  string    `json:"error,omitzero"` // dns, refused, timeout, tls, status, target or connection
		Replay bool      `json:"replay,omitzero"`
	}
)

// Pulled is a delivery of a pull endpoint: the headers and the body of its request. The names of headers are in lower
// case.
type Pulled struct {
	ID      string            `json:"id"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// DeliveryFilter selects the deliveries that Deliveries returns. The zero value selects the 100 newest.
type DeliveryFilter struct {
	Status string // only deliveries with this status
	Before string // only deliveries older than the one with this id
	Limit  int    // 1 to 100; 0 is 100
}

// AddWebhook adds an endpoint with the Kind, URL, TTL and Description of w, and returns it with its secret.
func (c *Client) AddWebhook(ctx context.Context, w Webhook) (Webhook, error) {
	body := object{"kind": w.Kind, "url": w.URL, "ttl": w.TTL, "description": w.Description}
	return call[Webhook](ctx, c, http.MethodPost, "webhooks", http.StatusCreated, body)
}

// Webhooks returns the endpoints of the store, oldest first.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	return call[[]Webhook](ctx, c, http.MethodGet, "webhooks", http.StatusOK, nil)
}

// Webhook returns an endpoint. As in the methods below, an *Error with the number 40403 means that it does not exist.
func (c *Client) Webhook(ctx context.Context, id string) (Webhook, error) {
	return call[Webhook](ctx, c, http.MethodGet, webhookPath(id), http.StatusOK, nil)
}

// ChangeWebhook sets the URL, Description and Disabled of the endpoint that has the ID of w.
func (c *Client) ChangeWebhook(ctx context.Context, w Webhook) (Webhook, error) {
	body := object{"url": w.URL, "description": w.Description, "disabled": w.Disabled}
	return call[Webhook](ctx, c, http.MethodPut, webhookPath(w.ID), http.StatusOK, body)
}

// RemoveWebhook removes an endpoint and its deliveries.
func (c *Client) RemoveWebhook(ctx context.Context, id string) error {
	_, err := call[any](ctx, c, http.MethodDelete, webhookPath(id), http.StatusNoContent, nil)
	return err
}

// RotateWebhook returns an endpoint with a new secret. Both secrets sign its requests for 24 hours.
func (c *Client) RotateWebhook(ctx context.Context, id string) (Webhook, error) {
	return call[Webhook](ctx, c, http.MethodPost, webhookPath(id)+"/rotate", http.StatusOK, nil)
}

// Deliveries returns deliveries of an endpoint, newest first.
func (c *Client) Deliveries(ctx context.Context, id string, f DeliveryFilter) ([]Delivery, error) {
	query := url.Values{"status": {f.Status}, "before": {f.Before}, "limit": {fmt.Sprint(cmp.Or(f.Limit, 100))}}
	maps.DeleteFunc(query, func(_ string, value []string) bool { return value[0] == "" })
	return call[[]Delivery](ctx, c, http.MethodGet, webhookPath(id)+"/deliveries?"+query.Encode(), http.StatusOK, nil)
}

// ReplayDelivery sends a delivery again.
func (c *Client) ReplayDelivery(ctx context.Context, id, delivery string) (Delivery, error) {
	path := webhookPath(id) + "/deliveries/" + url.PathEscape(delivery) + "/replay"
	return call[Delivery](ctx, c, http.MethodPost, path, http.StatusAccepted, nil)
}

// ReplayFailed sends the failed deliveries of plants created since a time again, at most the 10,000 newest, and returns
// their number. An *Error with the number 40901 means that an earlier replay has not ended.
func (c *Client) ReplayFailed(ctx context.Context, id string, since time.Time) (int, error) {
	got, err := call[struct{ Replaying int }](ctx, c, http.MethodPost, webhookPath(id)+"/replay", http.StatusAccepted,
		object{"since": since.UTC()})
	return got.Replaying, err
}

// Pull returns up to 100 deliveries of a pull endpoint. If there are none, it waits for one, at most 30 seconds. It
// returns the same deliveries again until Ack acknowledges them. The timeout of the HTTP client must be longer.
func (c *Client) Pull(ctx context.Context, id string, wait time.Duration) ([]Pulled, error) {
	path := fmt.Sprintf("%s/pull?wait=%.0f", webhookPath(id), wait.Seconds())
	got, err := call[struct{ Deliveries []Pulled }](ctx, c, http.MethodGet, path, http.StatusOK, nil)
	if err == nil && got.Deliveries == nil {
		err = errNotPlantStore
	}
	return got.Deliveries, err
}

// Retry makes Pull return up to 100 deliveries of a pull endpoint after a pause of a second to an hour, and others
// before. Unknown ids are ignored.
func (c *Client) Retry(ctx context.Context, id string, in time.Duration, ids ...string) error {
	_, err := call[any](ctx, c, http.MethodPost, webhookPath(id)+"/ack", http.StatusNoContent,
		object{"ids": ids, "retry_in": max(1, int(math.Ceil(in.Seconds())))})
	return err
}

// Ack acknowledges up to 100 deliveries of a pull endpoint. Unknown ids are ignored.
func (c *Client) Ack(ctx context.Context, id string, ids ...string) error {
	_, err := call[any](ctx, c, http.MethodPost, webhookPath(id)+"/ack", http.StatusNoContent, object{"ids": ids})
	return err
}
