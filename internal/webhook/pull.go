package webhook

import (
	"cmp"
	"errors"
	"math"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/rate"
	"plantstore/internal/share"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	maxPulls   = 256         // in flight
	maxPullsOf = 4           // of these, from one endpoint
	maxWait    = 30          // seconds
	maxRetryIn = 3600        // seconds
	maxPulled  = 128 << 10   // bytes of bodies in a response
	readEvery  = time.Minute // the least time between two stored times of a pull
)

// pulled is a delivery in the response to a pull.
type pulled struct {
	ID      string            `json:"id"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Pull returns due deliveries, or waits for one. It returns the same ones again until they are acknowledged.
func (w *Webhooks) Pull(c httpapi.Call) (any, error) {
	wait, err := c.QueryInteger(httpapi.ErrWebhookQuery, "wait", 0, maxWait, 0)
	if err != nil {
		return nil, err
	}
	waiters := &w.pulls
	if token.IsSandbox(c.Token.Store) {
		waiters = &w.boxPulls
	}
	leave, err := enter(waiters, c.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	timeout := time.After(time.Duration(wait) * time.Second)
	for {
		e, err := w.getPull(c)
		if err != nil {
			return nil, err
		}
		woken := w.notified(e) // before the deliveries are read
		page, err := w.pullable(c, e)
		if err != nil || len(page) > 0 || wait == 0 {
			return struct {
				Deliveries []pulled `json:"deliveries"`
			}{page}, err
		}
		resume := c.Park()
		select {
		case <-woken:
		case <-timeout:
			wait = 0
		case <-c.Gone:
			wait = 0
		case <-c.Stopping:
			wait = 0
		}
		if !resume() {
			return nil, httpapi.ErrEvicted
		}
	}
}

// enter bounds the waiting requests, each of which holds a connection.
func enter(waiters *share.Waiters[string], owner string) (leave func(), err error) {
	leave, ok := waiters.Enter(owner)
	if !ok {
		return nil, &rate.Exceeded{Why: httpapi.ErrWaiting, Wait: time.Second}
	}
	return leave, nil
}

// getPull returns the pull endpoint of a request, and stores the time of the pull, rarely: see readEvery.
func (w *Webhooks) getPull(c httpapi.Call) (endpoint, error) {
	e, err := w.get(c)
	if err == nil && e.Kind != pull {
		err = invalid("the endpoint has the kind push; use one of the kind pull")
	}
	if err == nil && time.Since(e.Read) > min(readEvery, e.ttl()/4) {
		e, err = w.changeFor(c, func(e *endpoint) { e.Read = now() })
	}
	return e, err
}

func (e *endpoint) ttl() time.Duration { return time.Duration(e.TTL) * time.Second }

// notified returns a channel that notify closes.
func (w *Webhooks) notified(e endpoint) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.activity(e)
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// pullable returns the deliveries that are due, up to maxPulled bytes.
func (w *Webhooks) pullable(c httpapi.Call, e endpoint) (page []pulled, err error) {
	found, err := w.due(c, e, maxPage)
	page = []pulled{}
	size := 0
	for _, d := range found {
		body, err := w.storage.Body(c, d.Event)
		if errors.Is(err, storage.ErrNoWebhook) { // it was acknowledged and removed meanwhile
			continue
		} else if err != nil {
			return nil, err
		}
		if size += len(body); size > maxPulled && len(page) > 0 {
			break
		}
		page = append(page, pulled{d.Event, e.headers(d.Event, time.Now(), []byte(body)), body})
	}
	return page, err
}

func (w *Webhooks) Acknowledge(c httpapi.Call) (any, error) {
	var sent struct {
		IDs     []string `json:"ids"`
		RetryIn *float64 `json:"retry_in"` // seconds; 1.0 is an integer
	}
	if err := decodeBody(c.Body, &sent, "ids and retry_in"); err != nil {
		return nil, err
	} else if len(sent.IDs) == 0 || len(sent.IDs) > maxPage {
		return nil, invalidField("ids", "must be an array of 1 to %d ids of deliveries", maxPage)
	}
	pause := *cmp.Or(sent.RetryIn, new(1.0))
	if pause < 1 || pause > maxRetryIn || pause != math.Trunc(pause) {
		return nil, invalidField("retry_in", "must be an integer from 1 to %d", maxRetryIn)
	}
	e, err := w.getPull(c)
	if err != nil {
		return nil, err
	}
	var changes []storage.DeliveryChange
	for _, id := range sent.IDs {
		if timeOf(id).IsZero() {
			continue // it is not an id
		}
		for _, status := range []storage.Status{storage.Waiting, storage.Replaying} {
			d := storage.Delivery{Webhook: e.ID, Event: id, Status: status}
			change := after(e, d, try{Time: now()}, now())
			if sent.RetryIn != nil {
				d.Due = now().Add(time.Duration(pause) * time.Second)
				change = storage.DeliveryChange{Delivery: d, From: status}
			}
			changes = append(changes, change)
		}
	}
	return nil, w.storage.ChangeDeliveries(c, changes)
}
