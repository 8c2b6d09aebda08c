package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	every   = time.Second            // between two rounds, which read the endpoints
	soonest = 100 * time.Millisecond // between two rounds, if a delivery may be due

	leaseTime   = 10 * time.Second
	leaseMargin = time.Second     // requests end before the lease does
	renewAfter  = 3 * time.Second // a process that dies is replaced within 14 s
	stopTime    = 2 * time.Second // for requests in flight when the service stops

	maxInFlight   = 64
	maxInFlightOf = 8                      // to an endpoint
	minInFlightOf = 2                      // the same, until a try succeeds, and after one fails
	interval      = 20 * time.Millisecond  // between two requests to an endpoint
	pageSize      = 16                     // deliveries of an endpoint that are read at once
	pollAfter     = 200 * time.Millisecond // for due deliveries, while a request is in flight
	resultsAfter  = 50 * time.Millisecond  // during which results are collected for one transaction

	readableFor = 10 * time.Minute // after the start, at most, before an unread pull endpoint is removed

	removeStep     = 200
	removeRest     = 10 // the pause after a full step, in multiples of its duration
	keepDelivered  = 24 * time.Hour
	keepFailed     = 7 * 24 * time.Hour
	afterAllEvents = "~" // sorts after each id of an event
)

// pauses are between the tries of a delivery, ± 10 %.
var pauses = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
	20 * time.Hour, 24 * time.Hour,
}

// history is the log of a delivery.
type history struct {
	Scheduled int       `json:"scheduled"`     // tries that were not replays
	Next      time.Time `json:"next,omitzero"` // next scheduled try of a waiting delivery that is replayed
	Tries     []try     `json:"tries"`         // the last maxTries
}

const maxTries = 20

// try is one request for a delivery.
type try struct {
	Time   time.Time `json:"time"`
	Status int       `json:"status,omitzero"` // of the response; 0 for none
	Millis int64     `json:"ms"`
	Error  string    `json:"error,omitzero"` // a class: see classOf
	Replay bool      `json:"replay,omitzero"`

	retryAfter time.Duration
}

func historyOf(d storage.Delivery) (h history) {
	json.Unmarshal([]byte(d.Log), &h) // empty before the first try
	return h
}

func (h history) encode() string {
	text, _ := json.Marshal(h) // every value of a history can be encoded
	return string(text)
}

// after returns the change of a delivery after a try.
func after(e endpoint, d storage.Delivery, t try, now time.Time) storage.DeliveryChange {
	h := historyOf(d)
	t.Replay = d.Status == storage.Replaying
	if !t.Replay {
		h.Scheduled++
	}
	h.Tries = append(h.Tries, t)
	h.Tries = h.Tries[max(0, len(h.Tries)-maxTries):]
	c := storage.DeliveryChange{Delivery: d, From: d.Status}
	switch {
	case t.Error == "":
		c.Status, c.Due = storage.Delivered, now.Add(keepDelivered)
		if token.IsSandbox(e.Store) {
			c.Due = now
		}
	case t.Replay && !h.Next.IsZero():
		c.Status, c.Due = storage.Waiting, h.Next
	case t.Replay, t.Status == http.StatusGone, h.Scheduled > len(pauses):
		c.Status, c.Due = storage.Failed, now.Add(keepFailed)
	default:
		pause := float64(pauses[h.Scheduled-1]) * (0.9 + 0.2*mathrand.Float64())
		c.Status, c.Due = storage.Waiting, now.Add(max(time.Duration(pause), t.retryAfter))
	}
	h.Next = time.Time{}
	c.Log = h.encode()
	return c
}

// Refresh reads all endpoints.
func (w *Webhooks) Refresh(ctx context.Context) error {
	w.changing.Lock()
	defer w.changing.Unlock()
	_, err := w.read(ctx, "")
	return err
}

// Run keeps the endpoints up to date until ctx ends. While it holds the lease, it also sends deliveries, and removes
// expired ones.
func (w *Webhooks) Run(ctx context.Context) {
	d := &deliverer{
		Webhooks: w, run: ctx, owner: rand.Text(), slots: make(chan struct{}, maxInFlight),
		results: make(chan result, maxInFlight), stored: make(chan struct{}), started: time.Now(),
	}
	go d.storeResults()
	defer d.stop()
	failed := false
	for ctx.Err() == nil {
		started := time.Now()
		rest, err := d.round()
		if err != nil && ctx.Err() == nil && !failed {
			w.log.Warn("webhooks can't be delivered now", "reason", err.Error())
		}
		failed = err != nil
		select {
		case <-time.After(rest):
		case <-w.woken:
			time.Sleep(soonest - time.Since(started))
		case <-ctx.Done():
		}
	}
}

// deliverer delivers while this process holds the lease.
type deliverer struct {
	*Webhooks
	run     context.Context // no try starts after its end
	owner   string
	slots   chan struct{} // has an element for each request in flight
	results chan result
	stored  chan struct{} // closed after the last result
	started time.Time

	renewed time.Time
	lease   context.Context // ends before the lease does; nil before the first
	expire  *time.Timer     // calls end
	end     context.CancelFunc

	serving sync.Map // endpoints that have a goroutine
	running sync.WaitGroup
}

func (d *deliverer) holds() bool { return d.lease != nil && d.lease.Err() == nil }

// round does what is due, and returns the time until the next round.
func (d *deliverer) round() (rest time.Duration, err error) {
	if err := d.Refresh(d.run); err != nil {
		return every, err
	}
	endpoints, rows := d.all()
	if rows == 0 && !d.holds() {
		return every, nil
	}
	now := time.Now()
	if now.Sub(d.renewed) >= renewAfter {
		if err := d.renew(); err != nil {
			return every, err
		}
	}
	oldest := ""
	for _, e := range endpoints {
		isDue := e.Replaying || e.Enabled && !e.Due.IsZero() && !e.Due.After(now)
		waits := e.Kind == push && e.Enabled && e.Oldest != ""
		if waits && (oldest == "" || e.Oldest < oldest) { // ids are in the order of time
			oldest = e.Oldest
		}
		switch {
		case e.Kind == pull && d.holds() && now.Sub(e.Read) > e.ttl() && now.Sub(d.started) > min(e.ttl(), readableFor):
			d.removeUnread(e)
		case isDue && e.Kind == pull:
			d.notify(e.ID)
		case isDue && d.holds():
			d.serve(e)
		}
	}
	if !d.holds() {
		d.oldest.Store(nil)
		return every, nil
	}
	d.oldest.Store(&oldest)
	now = time.Now()
	n, err := d.storage.RemoveDeliveries(d.run, now, removeStep)
	if n == removeStep {
		return min(every, removeRest*time.Since(now)), err
	}
	return every, err
}

// renew takes the lease or renews it.
func (d *deliverer) renew() error {
	started := time.Now()
	held, err := d.storage.Lease(d.run, d.owner, leaseTime)
	if err != nil {
		return err
	}
	d.renewed = started
	left := time.Until(started.Add(leaseTime - leaseMargin))
	switch {
	case held && d.holds() && d.expire.Stop():
		d.expire.Reset(left)
	case held:
		d.lease, d.end = context.WithCancel(context.WithoutCancel(d.run))
		d.expire = time.AfterFunc(left, d.end)
	case d.holds():
		d.end()
	}
	return nil
}

// stop waits up to stopTime for requests in flight, and releases the lease.
func (d *deliverer) stop() {
	held := d.holds()
	if held {
		time.AfterFunc(stopTime, d.end)
	}
	d.running.Wait()
	close(d.results)
	<-d.stored
	if held { // also if requests were interrupted
		d.storage.Lease(context.WithoutCancel(d.run), d.owner, 0)
		d.end()
	}
}

// removeUnread removes a pull endpoint that nobody has pulled for its TTL.
func (d *deliverer) removeUnread(e endpoint) {
	e, err := d.change(d.run, e.Store, e.ID, func(e *endpoint) {
		if time.Since(e.Read) > e.ttl() { // no other process has recorded a pull meanwhile
			e.remove()
		}
	})
	if err == nil && !e.Removed.IsZero() {
		d.log.Info("a webhook endpoint is removed: nobody has pulled it", "endpoint", e.ID, "store", e.Store)
	}
}

// serve starts deliver for an endpoint, unless it is running.
func (d *deliverer) serve(e endpoint) {
	if _, started := d.serving.LoadOrStore(e.ID, true); started {
		return
	}
	lease := d.lease
	d.running.Go(func() {
		defer d.serving.Delete(e.ID)
		d.deliver(lease, e.Store, e.ID)
	})
}

// deliver sends the due deliveries of an endpoint, until there are none.
func (d *deliverer) deliver(lease context.Context, store, id string) {
	inFlight, done := map[string]bool{}, make(chan result, maxInFlightOf)
	allowed, next := minInFlightOf, time.Now()
	var page []storage.Delivery
	for {
		e, err := pick(d.of(store), id)
		ok := err == nil && d.run.Err() == nil && lease.Err() == nil
		if ok && len(page) == 0 {
			page, _ = d.due(lease, e, pageSize+len(inFlight)) // after an error, the next round starts again
			page = slices.DeleteFunc(page, func(d storage.Delivery) bool { return inFlight[d.Event] })
		}
		page = slices.DeleteFunc(page, func(d storage.Delivery) bool { return !ok || !e.sends(d) })
		if len(page) == 0 && len(inFlight) == 0 {
			return
		}
		var start, poll <-chan time.Time
		if len(page) == 0 {
			poll = time.After(pollAfter)
		} else if len(inFlight) < allowed {
			start = time.After(time.Until(next))
		}
		select {
		case <-poll:
		case <-start:
			next = time.Now().Add(interval)
			delivery := page[0]
			page = page[1:]
			inFlight[delivery.Event] = true
			go d.try(lease, e.Store, delivery, done)
		case r := <-done:
			delete(inFlight, r.change.Event)
			if allowed = minInFlightOf; r.change.Status == storage.Delivered {
				allowed = maxInFlightOf
			}
		}
	}
}

// sends reports whether a delivery is sent: a disabled endpoint gets only replays.
func (e *endpoint) sends(d storage.Delivery) bool { return e.Enabled || d.Status == storage.Replaying }

// due returns at most limit deliveries of an endpoint that are due. If there are too many replays and too many others,
// it returns half of each.
func (w *Webhooks) due(ctx context.Context, e endpoint, limit int) ([]storage.Delivery, error) {
	f := storage.DeliveryFilter{Webhook: e.ID, Status: storage.Replaying, Due: time.Now(), Limit: limit}
	replays, err := w.storage.Deliveries(ctx, f)
	if err != nil {
		return nil, err
	}
	f.Status = storage.Waiting
	waiting, err := w.storage.Deliveries(ctx, f)
	n := min(len(replays), max(limit/2, limit-len(waiting)))
	return append(waiting[:min(len(waiting), limit-n)], replays[:n]...), err
}

// result is the result of a try.
type result struct {
	lease  context.Context
	change storage.DeliveryChange // without a status if the try was interrupted: nothing is stored
	done   chan<- result
}

// try tries a delivery. It sends the result to done once it is stored.
func (d *deliverer) try(lease context.Context, store string, delivery storage.Delivery, done chan<- result) {
	r := result{lease: lease, done: done}
	r.change.Event = delivery.Event
	select {
	case d.slots <- struct{}{}:
	case <-lease.Done():
		done <- r
		return
	}
	e, err := pick(d.of(store), delivery.Webhook) // it may have changed while the slots were taken
	var body string
	var t try
	if err == nil && e.sends(delivery) {
		body, err = d.storage.Body(lease, delivery.Event)
		if err == nil {
			t, err = d.send(lease, e, delivery.Event, []byte(body))
		}
	}
	<-d.slots
	if err != nil || t.Time.IsZero() {
		done <- r
		return
	}
	d.observe(cmp.Or(t.Error, "delivered"))
	if t.Status == http.StatusGone {
		d.disable(lease, e, "the receiver returned 410 Gone")
	}
	r.change = after(e, delivery, t, time.Now())
	d.results <- r
}

// storeResults stores the results of tries, several in a transaction.
func (d *deliverer) storeResults() {
	defer close(d.stored)
	for r := range d.results {
		time.Sleep(resultsAfter)
		batch, changes := []result{r}, []storage.DeliveryChange{r.change}
		for range len(d.results) {
			r := <-d.results
			batch, changes = append(batch, r), append(changes, r.change)
		}
		for d.storage.ChangeDeliveries(r.lease, changes) != nil && r.lease.Err() == nil {
			time.Sleep(every)
		}
		for _, r := range batch {
			r.done <- r
		}
	}
}
