// Package webhook sends new plants to the endpoints of their store. An endpoint gets a delivery for each plant that is
// created while it is enabled. The engine stores deliveries in the transaction of the plant: see storage.Webhooks.
//
// The process that holds the lease of the database sends the deliveries of push endpoints (deliver.go). Clients fetch
// the deliveries of pull endpoints from any process (pull.go).
package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/share"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// Config is what an operator sets.
type Config struct {
	Targets Targets  // addresses that push endpoints may have
	Proxy   *url.URL // of all requests; if it is not nil, Targets has no effect
}

// Webhooks are the endpoints of a database, as this process knows them. They implement httpapi.Webhooks.
type Webhooks struct {
	cfg       Config
	storage   storage.Webhooks
	client    *http.Client
	userAgent string
	log       *slog.Logger
	observe   func(result string)   // called after each try
	pulls     share.Waiters[string] // requests that wait for deliveries, by endpoint
	boxPulls  share.Waiters[string] // the same for sandboxes, which anyone can create
	changers  share.Waiters[string] // requests that wait for the mutex changing, by store; all sandboxes count as one
	replays   share.Waiters[string] // requests to replay failed deliveries, by endpoint
	woken     chan struct{}         // has an element if a delivery may be due before the next round

	changing sync.Mutex // held while endpoints are changed or read: a read never overwrites a newer change
	mu       sync.RWMutex
	stores   map[string][]endpoint // without removed endpoints
	rows     int                   // endpoints, with removed ones
	recent   map[string]*activity  // by endpoint

	oldest atomic.Pointer[string] // event of the oldest waiting delivery; nil or empty without one
}

// endpoint is a row of the database, with its settings.
type endpoint struct {
	storage.Webhook
	settings
}

// settings are the JSON in a row.
type settings struct {
	public
	Secret    string    `json:"secret"`
	OldSecret string    `json:"old_secret,omitzero"`
	OldUntil  time.Time `json:"old_until,omitzero"` // until then, OldSecret signs too
	Read      time.Time `json:"read,omitzero"`      // when a pull endpoint was last pulled, to about a minute
}

// public are the settings that clients see.
type public struct {
	Kind        string    `json:"kind"` // push or pull
	URL         string    `json:"url,omitzero"`
	TTL         int       `json:"ttl,omitzero"` // seconds without a pull after which a pull endpoint is removed
	Description string    `json:"description"`
	DisabledAt  time.Time `json:"disabled_at,omitzero"`
	Reason      string    `json:"disabled_reason,omitzero"`
}

const (
	push = "push"
	pull = "pull"
)

// bounds of the waiting deliveries of an endpoint.
type bounds struct{ deliveries, bytes int64 }

var (
	ordinary  = bounds{1_000_000, 1 << 30}
	inSandbox = bounds{1000, 1 << 20}
)

func boundsOf(store string) bounds {
	if token.IsSandbox(store) {
		return inSandbox
	}
	return ordinary
}

// activity is what this process has to do for an endpoint.
type activity struct {
	created bounds        // since the waiting deliveries were last counted
	changed chan struct{} // closed when there may be deliveries to pull; nil if no pull waits
}

// New returns the endpoints of a database. Run keeps them up to date.
func New(cfg Config, st storage.Webhooks, version string, log *slog.Logger, observe func(result string)) *Webhooks {
	return &Webhooks{
		cfg: cfg, storage: st, userAgent: "PlantStore/" + version, log: log, observe: observe,
		client: &http.Client{
			Transport:     newTransport(cfg.Targets, cfg.Proxy),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		recent:   map[string]*activity{},
		pulls:    share.Waiters[string]{PerOwner: maxPullsOf, Total: maxPulls},
		boxPulls: share.Waiters[string]{PerOwner: maxPullsOf, Total: maxPulls},
		changers: share.Waiters[string]{PerOwner: maxChangersOf, Total: maxChangers},
		replays:  share.Waiters[string]{PerOwner: 1, Total: 2 * maxEndpointsInTotal},
		woken:    make(chan struct{}, 1),
	}
}

// Oldest returns the age of the oldest waiting delivery to an enabled push endpoint. It is 0 without one, or if this
// process does not deliver.
func (w *Webhooks) Oldest() time.Duration {
	if event := w.oldest.Load(); event != nil && *event != "" {
		return time.Since(timeOf(*event))
	}
	return 0
}

// Creates returns create with an event for each plant of a store that has an enabled endpoint.
func (w *Webhooks) Creates(create httpapi.Create) httpapi.Create {
	return func(ctx context.Context, r plant.Record) (plant.Outcome, error) {
		endpoints := w.of(r.Store)
		if !slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.Enabled }) {
			return create(ctx, r)
		}
		r.Event = newEvent(time.Now())
		outcome, err := create(ctx, r)
		if outcome == plant.Created || errors.Is(err, storage.ErrUnknown) {
			for _, e := range endpoints {
				w.created(e, int64(r.Size()))
			}
		}
		return outcome, err
	}
}

// all returns all endpoints, and their number with removed ones.
func (w *Webhooks) all() (endpoints []endpoint, rows int) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, of := range w.stores {
		endpoints = append(endpoints, of...)
	}
	return endpoints, w.rows
}

// of returns the endpoints of a store.
func (w *Webhooks) of(store string) []endpoint {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.stores[store]
}

// created makes Run send a new delivery soon, and disables the endpoint if too many wait. It counts waiting deliveries
// after the first create of this process, and after each quarter of the bounds.
func (w *Webhooks) created(e endpoint, bytes int64) {
	if !e.Enabled {
		return
	}
	w.wake(e.ID)
	limit := boundsOf(e.Store)
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.activity(e)
	a.created.deliveries++
	a.created.bytes += bytes
	if a.created.deliveries > limit.deliveries/4 || a.created.bytes > limit.bytes/4 {
		a.created = bounds{}
		go w.count(e)
	}
}

// activity returns the activity at an endpoint. The caller holds mu.
func (w *Webhooks) activity(e endpoint) *activity {
	a := w.recent[e.ID]
	if a == nil {
		a = &activity{created: boundsOf(e.Store)}
		w.recent[e.ID] = a
	}
	return a
}

// count disables an endpoint if too many deliveries wait.
func (w *Webhooks) count(e endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reason, err := w.excess(ctx, e)
	if reason != "" {
		err = w.disable(ctx, e, reason)
	}
	if err != nil && !errors.Is(err, storage.ErrNoWebhook) {
		w.log.Warn("the waiting deliveries of a webhook endpoint can't be counted", "endpoint", e.ID, "reason", err.Error())
	}
}

// excess returns a sentence if too many deliveries wait, otherwise "".
func (w *Webhooks) excess(ctx context.Context, e endpoint) (string, error) {
	n, bytes, err := w.storage.Backlog(ctx, e.ID)
	limit := boundsOf(e.Store)
	if err != nil || n < limit.deliveries && bytes < limit.bytes {
		return "", err
	}
	return fmt.Sprintf("%d deliveries with %d bytes wait; at most %d with %d bytes may wait", n, bytes, limit.deliveries,
		limit.bytes), nil
}

// countLater postpones the next count of waiting deliveries: those of an endpoint that was full drain meanwhile.
func (w *Webhooks) countLater(e endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.activity(e).created = bounds{}
}

// wake makes Run and waiting pulls check an endpoint for due deliveries.
func (w *Webhooks) wake(id string) {
	w.notify(id)
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// notify wakes the waiting pulls of an endpoint.
func (w *Webhooks) notify(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.recent[id]; a != nil && a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// disable disables an endpoint for a reason, unless it has another URL now.
func (w *Webhooks) disable(ctx context.Context, e endpoint, reason string) error {
	after, err := w.change(ctx, e.Store, e.ID, func(latest *endpoint) {
		if latest.URL == e.URL {
			latest.disable(reason)
		}
	})
	if err == nil && !after.Enabled {
		w.log.Warn("a webhook endpoint is disabled", "endpoint", e.ID, "store", e.Store, "reason", reason)
	}
	return err
}

func (e *endpoint) disable(reason string) {
	if e.Enabled {
		e.Enabled, e.DisabledAt, e.Reason = false, now(), reason
	}
}

func (e *endpoint) remove() { e.Enabled, e.Removed = false, now() }

// DisableAll disables the endpoints of a database, and ends their replays. No process may serve it.
func DisableAll(ctx context.Context, st storage.Webhooks, reason string) error {
	all, _, err := load(ctx, st, "")
	for _, e := range all {
		err = cmp.Or(err, endReplays(ctx, st, e.ID))
	}
	return cmp.Or(err, changeAll(ctx, st, "", func(e *endpoint) { e.disable(reason) }))
}

// endReplays gives deliveries that are replayed the status that they would have if the replay had failed: a disabled
// endpoint gets replays.
func endReplays(ctx context.Context, st storage.Webhooks, id string) error {
	for {
		found, err := st.Deliveries(ctx, storage.DeliveryFilter{
			Webhook: id, Status: storage.Replaying, Before: afterAllEvents, Limit: replayStep,
		})
		if err != nil || len(found) == 0 {
			return err
		}
		var changes []storage.DeliveryChange
		for _, d := range found {
			if d.Status, d.Due = storage.Failed, now().Add(keepFailed); !historyOf(d).Next.IsZero() {
				d.Status, d.Due = storage.Waiting, historyOf(d).Next
			}
			changes = append(changes, storage.DeliveryChange{Delivery: d, From: storage.Replaying})
		}
		if err := st.ChangeDeliveries(ctx, changes); err != nil {
			return err
		}
	}
}

// RemoveAll removes the endpoints of a store.
func RemoveAll(ctx context.Context, st storage.Webhooks, store string) error {
	return changeAll(ctx, st, store, (*endpoint).remove)
}

func changeAll(ctx context.Context, st storage.Webhooks, store string, do func(*endpoint)) error {
	all, _, err := load(ctx, st, store)
	for _, e := range all {
		before := e.Webhook
		if do(&e); err == nil {
			err = st.ChangeWebhook(ctx, before, e.row())
		}
	}
	return err
}

// Copy copies endpoints to a database, disabled. It omits endpoints of sandboxes, and those that the database has.
func Copy(ctx context.Context, from, to storage.Webhooks, reason string) (copied int, err error) {
	all, _, err := load(ctx, from, "")
	there, thereErr := to.Webhooks(ctx, "")
	if err := cmp.Or(err, thereErr); err != nil {
		return 0, err
	}
	for _, e := range all {
		isThere := slices.ContainsFunc(there, func(h storage.Webhook) bool { return h.ID == e.ID })
		if isThere || token.IsSandbox(e.Store) {
			continue
		}
		e.disable(reason)
		if err := to.AddWebhook(ctx, e.row()); err != nil {
			return copied, err
		}
		copied++
	}
	return copied, nil
}

// row returns the endpoint with its settings as JSON.
func (e endpoint) row() storage.Webhook {
	text, _ := json.Marshal(e.settings) // every value of settings can be encoded
	e.Settings = string(text)
	return e.Webhook
}

// now returns the time as it is stored, to the millisecond.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// change changes an endpoint. It starts again if another process changes it meanwhile.
func (w *Webhooks) change(ctx context.Context, store, id string, do func(*endpoint)) (endpoint, error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	for attempt := 1; ; attempt++ {
		all, err := w.read(ctx, store)
		if err != nil {
			return endpoint{}, err
		}
		before, err := pick(all, id)
		if err != nil {
			return endpoint{}, err
		}
		after := before
		do(&after)
		err = w.storage.ChangeWebhook(ctx, before.Webhook, after.row())
		switch {
		case errors.Is(err, storage.ErrNoWebhook) && attempt < 5:
			continue
		case errors.Is(err, storage.ErrNoWebhook):
			err = fmt.Errorf("%w: other processes change the webhook endpoint", storage.ErrBusy)
		case err == nil:
			w.read(ctx, store) // after an error, Refresh reads it
		}
		return after, err
	}
}

// read loads endpoints and keeps them in stores. The caller holds changing.
func (w *Webhooks) read(ctx context.Context, store string) ([]endpoint, error) {
	all, rows, err := load(ctx, w.storage, store)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if store != "" {
		w.stores[store] = all
		return all, nil
	}
	w.stores, w.rows = map[string][]endpoint{}, rows
	known := map[string]bool{}
	for _, e := range all {
		w.stores[e.Store] = append(w.stores[e.Store], e)
		known[e.ID] = true
	}
	maps.DeleteFunc(w.recent, func(id string, _ *activity) bool { return !known[id] })
	return all, nil
}

// load reads the endpoints of a store, or of all stores if store is empty. rows counts removed ones too.
func load(ctx context.Context, st storage.Webhooks, store string) (all []endpoint, rows int, err error) {
	found, err := st.Webhooks(ctx, store)
	for _, row := range found {
		e := endpoint{Webhook: row}
		if json.Unmarshal([]byte(row.Settings), &e.settings) != nil {
			return nil, 0, fmt.Errorf("%w: the settings of webhook endpoint %s are invalid", storage.ErrDamaged, row.ID)
		}
		if row.Removed.IsZero() {
			all = append(all, e)
		}
	}
	return all, len(found), err
}

// pick returns the endpoint with an id.
func pick(all []endpoint, id string) (endpoint, error) {
	i := slices.IndexFunc(all, func(e endpoint) bool { return e.ID == id })
	if i < 0 {
		return endpoint{}, storage.ErrNoWebhook
	}
	return all[i], nil
}
