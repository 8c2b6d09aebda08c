package tables

import (
	"cmp"
	"context"
	"slices"
	"time"

	"plantstore/internal/storage"
)

const (
	addWebhook = `
		INSERT INTO webhooks (id, store, enabled, removed, created, settings) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT DO NOTHING`
	changeWebhook = `
		UPDATE webhooks SET enabled = $1, removed = $2, settings = $3 WHERE id = $4 AND settings = $5 AND removed IS NULL`
	allWebhooks = `
		SELECT id, store, enabled, removed, created, settings,
			(SELECT min(due) FROM deliveries WHERE webhook || status = id || 'waiting'),
			(SELECT min(event) FROM deliveries WHERE webhook = id AND status = 'waiting'),
			(SELECT min(event) FROM deliveries WHERE webhook = id AND status = 'replaying') IS NOT NULL
		FROM webhooks WHERE $1 = '' OR store = $1 ORDER BY created, id`

	eventBody        = "SELECT body FROM events WHERE id = $1"
	selectDeliveries = `
		SELECT webhook, event, plant, status, due, log FROM deliveries JOIN events ON events.id = event WHERE `
	newestDeliveries = selectDeliveries +
		"webhook = $1 AND status = $2 AND event >= $3 AND event < $4 ORDER BY event DESC LIMIT $5"
	// Its caller leaves out those that are not due. With a condition for that, and without statistics, PostgreSQL reads
	// and sorts all that are due.
	firstDeliveries = selectDeliveries + "webhook || status = $1 ORDER BY due LIMIT $2"

	backlog = `
		SELECT count(*), CAST(coalesce(sum(bytes), 0) AS bigint) FROM deliveries
		WHERE webhook = $1 AND status IN ('waiting', 'replaying')`
	removedWebhooks = "SELECT id FROM webhooks WHERE removed <= $1"

	changeDelivery = `
		UPDATE deliveries SET status = $1, due = $2, log = coalesce(nullif($3, ''), log)
		WHERE webhook = $4 AND status = $5 AND event = $6`
)

// The statements that remove deliveries, and events and endpoints without deliveries. OFFSET 0 makes PostgreSQL search
// for the deliveries of each event or endpoint by an index. Otherwise it reads all of them. An event is searched with
// each status, because the index has the status before the event.
const (
	removeDelivery = "DELETE FROM deliveries WHERE webhook = $1 AND status = $2 AND event = $3 AND due = $4"
	removeEvent    = `
		DELETE FROM events WHERE id = $1 AND NOT EXISTS (
			SELECT 1 FROM webhooks CROSS JOIN (VALUES ('waiting'), ('replaying'), ('delivered'), ('failed')) AS statuses
			WHERE webhooks.store = events.store AND EXISTS (
				SELECT 1 FROM deliveries WHERE webhook = webhooks.id AND status = column1 AND event = events.id LIMIT 1 OFFSET 0))`
	forgetWebhooks = `
		DELETE FROM webhooks WHERE removed <= $1 AND NOT EXISTS (
			SELECT 1 FROM deliveries WHERE webhook = webhooks.id ORDER BY webhook, status, event LIMIT 1 OFFSET 0)`
)

func (t Tables) AddWebhook(_ context.Context, w storage.Webhook) error {
	return t.change(true, nil, addWebhook, w.ID, w.Store, w.Enabled, millis(w.Removed), w.Created.UnixMilli(), w.Settings)
}

// ChangeWebhook is not repeatable: after it has succeeded, the settings are no longer those of before.
func (t Tables) ChangeWebhook(_ context.Context, before, after storage.Webhook) error {
	return t.change(false, storage.ErrNoWebhook, changeWebhook, after.Enabled, millis(after.Removed), after.Settings,
		before.ID, before.Settings)
}

func (t Tables) Webhooks(ctx context.Context, store string) ([]storage.Webhook, error) {
	return read(ctx, t, Ordinary, func(row *row) storage.Webhook {
		return storage.Webhook{
			ID: row.text(0), Store: row.text(1), Enabled: row.isTrue(2), Removed: row.time(3), Created: row.time(4),
			Settings: row.text(5), Due: row.time(6), Oldest: row.text(7), Replaying: row.isTrue(8),
		}
	}, allWebhooks, store)
}

func (t Tables) Deliveries(ctx context.Context, f storage.DeliveryFilter) ([]storage.Delivery, error) {
	query, args := newestDeliveries, []any{f.Webhook, string(f.Status), f.From, f.Before, int64(f.Limit)}
	if !f.Due.IsZero() {
		query, args = firstDeliveries, []any{f.Webhook + string(f.Status), int64(f.Limit)}
	}
	all, err := read(ctx, t, Ordinary, func(row *row) storage.Delivery {
		return storage.Delivery{
			Webhook: row.text(0), Event: row.text(1), Plant: row.number(2), Status: storage.Status(row.text(3)),
			Due: row.time(4), Log: row.text(5),
		}
	}, query, args...)
	return slices.DeleteFunc(all, func(d storage.Delivery) bool { return !f.Due.IsZero() && d.Due.After(f.Due) }), err
}

func (t Tables) Body(ctx context.Context, event string) (string, error) {
	return readOne(ctx, t, Ordinary, storage.ErrNoWebhook, textOf, eventBody, event)
}

func (t Tables) Backlog(ctx context.Context, webhook string) (deliveries, bytes int64, err error) {
	sums := func(r *row) [2]int64 { return [2]int64{r.number(0), r.number(1)} }
	all, err := readOne(ctx, t, Count, nil, sums, backlog, webhook)
	return all[0], all[1], err
}

func (t Tables) ChangeDeliveries(_ context.Context, changes []storage.DeliveryChange) error {
	return writeEach(t, changes, byEvent, func(c storage.DeliveryChange) Statement {
		args := []any{string(c.Status), c.Due.UnixMilli(), c.Log, c.Webhook, string(c.From), c.Event}
		return Statement{changeDelivery, args}
	})
}

func byEvent(a, b storage.DeliveryChange) int {
	return cmp.Or(cmp.Compare(a.Webhook, b.Webhook), cmp.Compare(a.Event, b.Event))
}

// RemoveDeliveries starts a transaction, for which creates may wait, only if there is something to remove. It keeps a
// delivery that a replay has changed since it was read.
func (t Tables) RemoveDeliveries(ctx context.Context, now time.Time, limit int) (removed int, err error) {
	forget := now.Add(-storage.ForgetAfter).UnixMilli()
	key := func(r *row) []any { return []any{r.text(0), r.text(1), r.text(2), r.number(3)} }
	expired, err := read(ctx, t, Ordinary, key, t.expired, now.UnixMilli(), int64(limit))
	if err != nil {
		return 0, err
	}
	endpoints, err := read(ctx, t, Ordinary, textOf, removedWebhooks, forget)
	if err != nil || len(expired)+len(endpoints) == 0 {
		return 0, err
	}
	var all []Statement
	slices.SortFunc(expired, func(a, b []any) int { return cmp.Compare(a[2].(string), b[2].(string)) })
	for i, delivery := range expired {
		all = append(all, Statement{removeDelivery, delivery})
		if i+1 == len(expired) || expired[i+1][2] != delivery[2] { // the last one of its event
			all = append(all, Statement{removeEvent, delivery[2:3]})
		}
	}
	if _, err := t.db.Write(true, append(all, Statement{forgetWebhooks, []any{forget}})...); err != nil {
		return 0, err
	}
	return len(expired), nil
}
