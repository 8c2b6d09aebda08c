package webhook

import (
	"cmp"
	"crypto/rand"
	"errors"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/internal/httpapi"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	maxEndpoints          = 16 // in a store
	maxEndpointsInSandbox = 2
	maxEndpointsInTotal   = 1000 // about, in all stores, and as many in all sandboxes

	maxChangers   = 64 // requests that wait to change endpoints: Refresh waits for them
	maxChangersOf = 16 // of these, for one store

	maxDescription = 1000      // characters
	defaultTTL     = 24 * 3600 // seconds, as the next two
	minTTL         = 60
	maxTTL         = 7 * 24 * 3600

	bothSecrets = 24 * time.Hour // after a rotation, both sign
	maxPage     = 100
	maxReplayed = 10_000 // by one request
	replayStep  = 200    // in one transaction
)

// shown is an endpoint in a response.
type shown struct {
	ID string `json:"id"`
	public
	Created  time.Time `json:"created"`
	Disabled bool      `json:"disabled"`
	Secret   string    `json:"secret,omitzero"`
}

// show returns the endpoint with a secret, or with "" to hide it.
func (e *endpoint) show(secret string) shown {
	return shown{e.ID, e.public, e.Created, !e.Enabled, secret}
}

func invalid(format string, args ...any) error {
	return httpapi.Failf(httpapi.ErrWebhookBody, format, args...)
}

func invalidField(field, format string, args ...any) error {
	return httpapi.FailField(httpapi.ErrWebhookBody, field, format, args...)
}

// decodeBody decodes the body of a request into a struct, whose members have the names.
func decodeBody(body []byte, to any, names string) error {
	var members map[string]jsontext.Value
	err := json.Unmarshal(body, &members)
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return invalid("the body has a member twice")
	} else if err != nil || members == nil {
		return invalid("the body must be a JSON object with %s", names)
	}
	for name, value := range members {
		if value.Kind() == 'n' {
			return invalid("%.64q must not be null; omit it", name)
		}
	}
	err = json.Unmarshal(body, to, json.RejectUnknownMembers(true))
	semantic, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case ok && errors.Is(err, json.ErrUnknownName):
		return invalid("the member %.64q of the body is unknown; use %s", semantic.JSONPointer.LastToken(), names)
	case ok:
		field, _, _ := strings.Cut(strings.TrimPrefix(string(semantic.JSONPointer), "/"), "/")
		return invalidField(field, "has the wrong type")
	}
	return err
}

func (w *Webhooks) Add(c httpapi.Call) (any, error) {
	var sent struct {
		Kind        string   `json:"kind"`
		URL         string   `json:"url"`
		Description string   `json:"description"`
		TTL         *float64 `json:"ttl"` // 60.0 is an integer
	}
	sent.Kind = push
	if err := decodeBody(c.Body, &sent, "kind, url, ttl and description"); err != nil {
		return nil, err
	}
	var e endpoint
	e.ID, e.Store, e.Enabled, e.Created = "wh_"+strings.ToLower(rand.Text()), c.Token.Store, true, now()
	e.Kind, e.URL, e.Description, e.Secret = sent.Kind, sent.URL, sent.Description, NewSecret()
	switch {
	case e.Kind == push && token.IsSandbox(e.Store):
		return nil, invalidField("kind", "must be pull in a sandbox")
	case e.Kind == push && sent.TTL != nil:
		return nil, invalidField("ttl", "is for endpoints of the kind pull; omit it")
	case e.Kind == pull:
		ttl := *cmp.Or(sent.TTL, new(float64(defaultTTL)))
		if ttl < minTTL || ttl > maxTTL || ttl != math.Trunc(ttl) {
			return nil, invalidField("ttl", "must be an integer from %d to %d", minTTL, maxTTL)
		}
		e.Read, e.TTL = e.Created, int(ttl)
	}
	if err := w.check(c, e); err != nil {
		return nil, err
	}
	leave, err := enter(&w.changers, changerOf(e.Store))
	if err != nil {
		return nil, err
	}
	defer leave()
	w.changing.Lock()
	defer w.changing.Unlock()
	if err := w.checkNumber(c, e.Store); err != nil {
		return nil, err
	}
	if err := w.storage.AddWebhook(c, e.row()); err != nil {
		return nil, err
	}
	w.read(c, e.Store) // after an error, Refresh reads it
	w.wake(e.ID)
	return e.show(e.Secret), nil
}

// changeFor changes the endpoint of a request.
func (w *Webhooks) changeFor(c httpapi.Call, do func(*endpoint)) (endpoint, error) {
	leave, err := enter(&w.changers, changerOf(c.Token.Store))
	if err != nil {
		return endpoint{}, err
	}
	defer leave()
	return w.change(c, c.Token.Store, c.ID, do)
}

func changerOf(store string) string {
	if token.IsSandbox(store) {
		return token.SandboxPrefix
	}
	return store
}

// check returns an error unless the kind, URL and description of an endpoint are valid.
func (w *Webhooks) check(c httpapi.Call, e endpoint) error {
	switch {
	case utf8.RuneCountInString(e.Description) > maxDescription || strings.Contains(e.Description, "\x00"):
		return invalidField("description", "must have at most %d characters and no U+0000", maxDescription)
	case e.Kind == push:
		return w.checkTarget(c, e.URL)
	case e.Kind != pull:
		return invalidField("kind", "must be push or pull")
	case e.URL != "":
		return invalidField("url", "is for endpoints of the kind push; omit it")
	}
	return nil
}

// checkNumber returns an error if a store can't have another endpoint. The caller holds changing.
func (w *Webhooks) checkNumber(c httpapi.Call, store string) error {
	of, err := w.read(c, store)
	if err != nil {
		return err
	}
	most := maxEndpoints
	if token.IsSandbox(store) {
		most = maxEndpointsInSandbox
	}
	if len(of) >= most {
		return httpapi.Failf(httpapi.ErrTooManyEndpoints, "the store already has %d endpoints; remove one", most)
	}
	all, _ := w.all()
	all = slices.DeleteFunc(all, func(e endpoint) bool { return token.IsSandbox(e.Store) != token.IsSandbox(store) })
	if len(all) >= maxEndpointsInTotal {
		return httpapi.Failf(httpapi.ErrTooManyEndpoints, "the service already has %d endpoints; remove one", len(all))
	}
	return nil
}

// checkTarget returns an error unless the service delivers to a URL.
func (w *Webhooks) checkTarget(c httpapi.Call, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || len(text) > 2048 {
		return invalidField("url", "is required and must be an absolute URL of at most 2048 bytes")
	}
	_, portErr := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	_, addressErr := netip.ParseAddr(u.Hostname())
	switch {
	case portErr != nil || addressErr != nil && numeric.MatchString(u.Hostname()):
		return invalidField("url", "must have a name or an IP address, and a port up to 65535")
	case u.Scheme != "http" && u.Scheme != "https":
		return invalidField("url", "must start with http:// or https://")
	case u.User != nil || strings.Contains(text, "#"):
		return invalidField("url", "must have no user and no fragment")
	case w.cfg.Proxy == nil && !w.cfg.Targets.allowHost(c, u.Hostname()):
		return httpapi.FailField(httpapi.ErrTarget, "url",
			"has an address that is not allowed; use another, or ask the operator to change --webhook-targets")
	}
	return nil
}

func (w *Webhooks) List(c httpapi.Call) (any, error) {
	found, _, err := load(c, w.storage, c.Token.Store)
	all := []shown{}
	for _, e := range found {
		all = append(all, e.show(""))
	}
	return all, err
}

// get reads the endpoint of a request.
func (w *Webhooks) get(c httpapi.Call) (endpoint, error) {
	all, _, err := load(c, w.storage, c.Token.Store)
	if err != nil {
		return endpoint{}, err
	}
	return pick(all, c.ID)
}

func (w *Webhooks) Get(c httpapi.Call) (any, error) {
	e, err := w.get(c)
	return e.show(""), err
}

func (w *Webhooks) Change(c httpapi.Call) (any, error) {
	var sent struct {
		URL         string `json:"url"`
		Description string `json:"description"`
		Disabled    bool   `json:"disabled"`
	}
	if err := decodeBody(c.Body, &sent, "url, description and disabled"); err != nil {
		return nil, err
	}
	e, err := w.get(c)
	if err != nil {
		return nil, err
	}
	e.URL, e.Description = sent.URL, sent.Description
	if err := w.check(c, e); err != nil {
		return nil, err
	}
	if e.Kind == pull && !e.Enabled && !sent.Disabled { // the deliveries of a push endpoint drain once it is enabled
		if reason, err := w.excess(c, e); err != nil {
			return nil, err
		} else if reason != "" {
			return nil, invalid("%s; acknowledge some before you enable the endpoint", reason)
		}
	}
	e, err = w.changeFor(c, func(e *endpoint) {
		e.URL, e.Description = sent.URL, sent.Description
		switch {
		case sent.Disabled:
			e.disable("a client has disabled it")
		case !e.Enabled:
			e.Enabled, e.DisabledAt, e.Reason = true, time.Time{}, ""
			w.countLater(*e)
		}
	})
	if err == nil {
		w.wake(e.ID)
	}
	return e.show(""), err
}

func (w *Webhooks) Remove(c httpapi.Call) (any, error) {
	_, err := w.changeFor(c, (*endpoint).remove)
	return nil, err
}

func (w *Webhooks) Rotate(c httpapi.Call) (any, error) {
	if len(c.Body) > 0 {
		return nil, invalid("the request must have no body")
	}
	e, err := w.changeFor(c, func(e *endpoint) {
		e.OldSecret, e.OldUntil, e.Secret = e.Secret, now().Add(bothSecrets), NewSecret()
	})
	return e.show(e.Secret), err
}

// shownDelivery is a delivery in a response.
type shownDelivery struct {
	ID      string         `json:"id"`
	Plant   int64          `json:"plant"`
	Status  storage.Status `json:"status"`
	Created time.Time      `json:"created"`
	Next    time.Time      `json:"next,omitzero"` // try of a waiting delivery
	Tries   []try          `json:"tries"`
}

func show(d storage.Delivery) shownDelivery {
	s := shownDelivery{ID: d.Event, Plant: d.Plant, Status: d.Status, Created: timeOf(d.Event), Tries: historyOf(d).Tries}
	if d.Status == storage.Waiting {
		s.Next = d.Due
	}
	if s.Tries == nil {
		s.Tries = []try{}
	}
	return s
}

func (w *Webhooks) Deliveries(c httpapi.Call) (any, error) {
	limit, err := c.QueryInteger(httpapi.ErrWebhookQuery, "limit", 1, maxPage, maxPage)
	if err != nil {
		return nil, err
	}
	statuses, before := storage.Statuses, afterAllEvents
	if c.Query.Has("status") {
		status := storage.Status(c.Query.Get("status"))
		if !slices.Contains(statuses, status) || len(c.Query["status"]) > 1 {
			return nil, httpapi.FailField(httpapi.ErrWebhookQuery, "status",
				"must be one of waiting, replaying, delivered and failed")
		}
		statuses = []storage.Status{status}
	}
	if c.Query.Has("before") {
		if before = c.Query.Get("before"); timeOf(before).IsZero() || len(c.Query["before"]) > 1 {
			return nil, httpapi.FailField(httpapi.ErrWebhookQuery, "before", "must be the id of one delivery")
		}
	}
	if _, err := w.get(c); err != nil {
		return nil, err
	}
	found, err := w.deliveries(c, statuses, "", before, limit)
	page := []shownDelivery{}
	for _, d := range found {
		page = append(page, show(d))
	}
	return page, err
}

// deliveries returns the newest deliveries of an endpoint with one of the statuses, whose events are at least from and
// below before.
func (w *Webhooks) deliveries(c httpapi.Call, statuses []storage.Status, from, before string, limit int) (
	all []storage.Delivery, err error,
) {
	for _, status := range statuses {
		found, err := w.storage.Deliveries(c, storage.DeliveryFilter{
			Webhook: c.ID, Status: status, From: from, Before: before, Limit: limit,
		})
		if err != nil {
			return nil, err
		}
		all = append(found, all...) // a delivery whose status changes is found twice: its later status first
	}
	slices.SortStableFunc(all, func(a, b storage.Delivery) int { return strings.Compare(b.Event, a.Event) })
	all = slices.CompactFunc(all, func(a, b storage.Delivery) bool { return a.Event == b.Event })
	return all[:min(len(all), limit)], nil
}

func (w *Webhooks) Replay(c httpapi.Call) (any, error) {
	if _, err := w.get(c); err != nil {
		return nil, err
	}
	if timeOf(c.Delivery).IsZero() {
		return nil, storage.ErrNoWebhook
	}
	found, err := w.deliveries(c, storage.Statuses, c.Delivery, c.Delivery+afterAllEvents, 1)
	if err != nil {
		return nil, err
	} else if len(found) == 0 {
		return nil, storage.ErrNoWebhook
	}
	change := replayed(found[0])
	if err := w.storage.ChangeDeliveries(c, []storage.DeliveryChange{change}); err != nil {
		return nil, err
	}
	w.wake(c.ID)
	return show(change.Delivery), nil
}

// replayed returns the change that replays a delivery. A waiting one waits for its next try again if the replay fails.
func replayed(d storage.Delivery) storage.DeliveryChange {
	c := storage.DeliveryChange{Delivery: d, From: d.Status}
	if c.Status = storage.Replaying; d.Status == storage.Waiting {
		h := historyOf(d)
		h.Next = d.Due
		c.Log = h.encode()
	}
	c.Due = now()
	return c
}

func (w *Webhooks) ReplayFailed(c httpapi.Call) (any, error) {
	var sent struct {
		Since string `json:"since"`
	}
	if err := decodeBody(c.Body, &sent, "since"); err != nil {
		return nil, err
	}
	since, err := time.Parse(time.RFC3339, sent.Since)
	if err != nil {
		return nil, invalidField("since", "is required and must be a time such as 2026-01-31T12:00:00Z")
	}
	leave, ok := w.replays.Enter(c.ID)
	if !ok {
		return nil, httpapi.ErrReplaying
	}
	defer leave()
	e, err := w.get(c) // after an earlier replay has started
	if err != nil {
		return nil, err
	} else if e.Replaying {
		return nil, httpapi.ErrReplaying
	}
	n, from, before := 0, firstEvent(since), afterAllEvents
	for n < maxReplayed {
		found, err := w.deliveries(c, []storage.Status{storage.Failed}, from, before, replayStep)
		if err != nil {
			return nil, err
		} else if len(found) == 0 {
			break
		}
		var changes []storage.DeliveryChange
		for _, d := range found {
			changes = append(changes, replayed(d))
		}
		if err := w.storage.ChangeDeliveries(c, changes); err != nil {
			return nil, err
		}
		n, before = n+len(found), found[len(found)-1].Event
	}
	w.wake(e.ID)
	return struct {
		Replaying int `json:"replaying"`
	}{n}, nil
}
