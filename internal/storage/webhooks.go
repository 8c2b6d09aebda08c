package storage

import (
	"context"
	"errors"
	"time"
)

// Webhook is an endpoint, which gets a delivery for each plant that is created in its store. Times are stored to the
// millisecond.
type Webhook struct {
	ID       string
	Store    string
	Enabled  bool   // a create stores a delivery
	Settings string // JSON, which engines do not read
	Created  time.Time
	Removed  time.Time // if not zero, its deliveries are removed, and then the endpoint

	// Set by Webhooks. Zero values mean that there is no such delivery.
	Due       time.Time // of the waiting delivery that is due first
	Oldest    string    // event of the oldest waiting delivery
	Replaying bool      // a delivery is being replayed
}

// Status is the state of a delivery.
type Status string

const (
	Waiting   Status = "waiting"   // for its first or next try
	Replaying Status = "replaying" // for a try that a client has asked for, also if the endpoint is disabled
	Delivered Status = "delivered"
	Failed    Status = "failed"
)

// Statuses are all statuses.
var Statuses = []Status{Waiting, Replaying, Delivered, Failed}

// Delivery is an event for one endpoint.
type Delivery struct {
	Webhook string
	Event   string // id of the event; ids are in the order of time
	Plant   int64
	Status  Status
	Due     time.Time // when it is tried or, if it is delivered or failed, removed
	Log     string    // JSON, which engines do not read
}

// DeliveryFilter selects deliveries of one endpoint and status.
type DeliveryFilter struct {
	Webhook string
	Status  Status
	Due     time.Time // if not zero, only deliveries that are due then, in the order of Due; otherwise newest first
	From    string    // the lowest event; ignored with Due
	Before  string    // only lower events; ignored with Due
	Limit   int
}

// DeliveryChange gives a delivery another status, unless its status is no longer From.
type DeliveryChange struct {
	Delivery
	From Status
}

// ForgetAfter is how long a removed endpoint is kept at least: a create in flight may still store deliveries.
const ForgetAfter = time.Minute

// ErrNoWebhook means that the endpoint or delivery does not exist, or was changed.
var ErrNoWebhook = errors.New("no webhook endpoint or delivery has this id")

// Webhooks stores endpoints, events and deliveries. If Record.Event is set, CreateBatch stores the event and a delivery
// for each enabled endpoint of the store, in the transaction that creates the plant. Without an enabled endpoint, it
// stores no event.
type Webhooks interface {
	// AddWebhook stores an endpoint with a new id.
	AddWebhook(ctx context.Context, w Webhook) error

	// ChangeWebhook stores the Enabled, Removed and Settings of an endpoint. The error is ErrNoWebhook if it is removed,
	// or if its settings differ from before.
	ChangeWebhook(ctx context.Context, before, after Webhook) error

	// Webhooks returns the endpoints of one store or, if that is empty, of all stores, the oldest first. Its cost does not
	// depend on the number of deliveries.
	Webhooks(ctx context.Context, store string) ([]Webhook, error)

	// Deliveries returns deliveries without their bodies.
	Deliveries(ctx context.Context, f DeliveryFilter) ([]Delivery, error)

	// Body returns the body of an event, or ErrNoWebhook.
	Body(ctx context.Context, event string) (string, error)

	// Backlog returns the number of waiting and replaying deliveries of an endpoint, and the size of their bodies.
	Backlog(ctx context.Context, webhook string) (deliveries, bytes int64, err error)

	// ChangeDeliveries changes status, due time and log of deliveries that have the status From. An empty log keeps the
	// one that is stored. Repeating it has no further effect.
	ChangeDeliveries(ctx context.Context, changes []DeliveryChange) error

	// RemoveDeliveries removes at most limit deliveries, and returns their number: delivered and failed ones that are due,
	// and those of removed endpoints. It also removes events without deliveries, and endpoints without deliveries that
	// were removed at least ForgetAfter ago.
	RemoveDeliveries(ctx context.Context, now time.Time, limit int) (removed int, err error)

	// Lease takes or renews the lease of the process that delivers, for d by the clock of the database, and reports
	// whether the owner holds it. The owner does not while another one holds it. If d is zero, it releases the lease.
	Lease(ctx context.Context, owner string, d time.Duration) (held bool, err error)
}
