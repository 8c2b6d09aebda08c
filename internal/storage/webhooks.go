package storage

import (
	"context"
	"errors"
	"time"
)

// Webhook is an endpoint that gets a delivery for each plant that is created in its store. Times are kept to the
// millisecond.
type Webhook struct {
	ID       string
	Store    string
	Enabled  bool   // creates write deliveries
	Settings string // JSON, which engines do not read
	Created  time.Time
	Removed  time.Time // if not zero, its deliveries are removed, and then the endpoint

	// What Webhooks finds. The zero value of each means that there is no such delivery.
	Due       time.Time // of the waiting delivery that is due first
	Oldest    string    // event of the oldest waiting delivery
	Replaying bool      // deliveries are to be repeated
}

// Status is the state of a delivery.
type Status string

const (
	Waiting   Status = "waiting"   // for its first or next try
	Replaying Status = "replaying" // a client has asked for another try, also if the endpoint is disabled
	Delivered Status = "delivered"
	Failed    Status = "failed"
)

// Statuses are all of them.
var Statuses = []Status{Waiting, Replaying, Delivered, Failed}

// Delivery is an event for one endpoint.
type Delivery struct {
	Webhook string
	Event   string // id of the event; ids are in the order of time
	Plant   int64
	Status  Status
	Due     time.Time // when it is tried, or removed
	Log     string    // JSON, which engines do not read
}

// DeliveryFilter selects deliveries of one endpoint and status.
type DeliveryFilter struct {
	Webhook string
	Status  Status
	Due     time.Time // if not zero, those that are due then, the first due first; otherwise the newest first
	From    string    // the lowest event, without Due
	Before  string    // the first event above the selected ones, without Due
	Limit   int
}

// DeliveryChange gives a delivery another status, unless its status is no longer From.
type DeliveryChange struct {
	Delivery
	From Status
}

// ForgetAfter is how long a removed endpoint is kept at least: a create in flight may still write deliveries.
const ForgetAfter = time.Minute

// ErrNoWebhook: there is no such endpoint or delivery, or it was changed.
var ErrNoWebhook = errors.New("no webhook endpoint, or no delivery of it, has this id")

// Webhooks keeps endpoints, events and deliveries. CreateBatch writes them: if Record.Event is set, a plant that is
// created has that event, and a delivery of it for each enabled endpoint of its store, in the same transaction.
// Without an enabled endpoint, there is no event.
type Webhooks interface {
	// AddWebhook stores an endpoint with a new id.
	AddWebhook(ctx context.Context, w Webhook) error

	// ChangeWebhook stores the Enabled, Removed and Settings of an endpoint. If its settings are no longer those of
	// before, or it is removed, the error is ErrNoWebhook.
	ChangeWebhook(ctx context.Context, before, after Webhook) error

	// Webhooks returns the endpoints of one store or, if that is empty, of all stores, the oldest first. Its cost does not
	// depend on the number of deliveries.
	Webhooks(ctx context.Context, store string) ([]Webhook, error)

	// Deliveries returns deliveries without their bodies.
	Deliveries(ctx context.Context, f DeliveryFilter) ([]Delivery, error)

	// Body returns the body of an event, or ErrNoWebhook.
	Body(ctx context.Context, event string) (string, error)

	// Backlog returns how many deliveries of an endpoint wait or are to be repeated, and the length of their bodies.
	Backlog(ctx context.Context, webhook string) (deliveries, bytes int64, err error)

	// ChangeDeliveries changes status, due time and log of deliveries that still have the status From. It may be
	// repeated.
	ChangeDeliveries(ctx context.Context, changes []DeliveryChange) error

	// RemoveDeliveries removes at most limit deliveries: delivered or failed ones that are due, and those of removed
	// endpoints. It also removes events that have lost their last delivery, and endpoints without deliveries that
	// were removed before ForgetAfter.
	// It returns how many deliveries it has removed.
	RemoveDeliveries(ctx context.Context, now time.Time, limit int) (removed int, err error)

	// Lease makes an owner the only process that delivers, for a time from now on by the clock of the database, and
	// reports whether it is. It is not while another owner's time has not passed. A zero time releases the lease.
	Lease(ctx context.Context, owner string, d time.Duration) (held bool, err error)
}
