package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	addWebhook = `
		INSERT INTO webhooks (id, store, enabled, removed, created, settings) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT DO NOTHING`
	changeWebhook = `
		UPDATE webhooks SET enabled = $1, removed = $2, settings = $3 WHERE id = $4 AND settings = $5 AND removed IS NULL`
	allWebhooks = `
		SELECT id, store, enabled, removed, created, settings,
			(SELECT min(due) FROM deliveries WHERE webhook = id AND status = 'waiting'),
			coalesce((SELECT min(event) FROM deliveries WHERE webhook = id AND status = 'waiting'), ''),
			EXISTS (SELECT 1 FROM deliveries WHERE webhook = id AND status = 'replaying')
		FROM webhooks WHERE $1 = '' OR store = $1 ORDER BY created, id`

	// Nothing locks the targets, so an endpoint may be removed before its deliveries are visible: see ForgetAfter.
	addEvents = `
		WITH targets AS (
			SELECT event, sent.store, plant, body, webhooks.id AS webhook
			FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS sent (event, store, plant, body)
			JOIN webhooks ON webhooks.store = sent.store AND enabled),
		added AS (
			INSERT INTO events (id, store, plant, body) SELECT DISTINCT event, store, plant, body FROM targets)
		INSERT INTO deliveries (webhook, status, event, due, bytes, log)
		SELECT webhook, 'waiting', event, $5::bigint, octet_length(body), '' FROM targets`

	eventBody        = "SELECT body FROM events WHERE id = $1"
	selectDeliveries = `
		SELECT webhook, event, plant, status, due, log FROM deliveries JOIN events ON events.id = event
		WHERE webhook = $1 AND status = $2`
	newestDeliveries = selectDeliveries + " AND event >= $3 AND event < $4 ORDER BY event DESC LIMIT $5"
	// Without fresh statistics, conditions for the event would make the server sort all waiting deliveries.
	dueDeliveries = selectDeliveries + " AND due <= $3 ORDER BY due LIMIT $4"
	backlog       = `
		SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM deliveries
		WHERE webhook = $1 AND status IN ('waiting', 'replaying')`
	changeDeliveries = `
		UPDATE deliveries SET status = sent.status, due = sent.due, log = sent.log
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[])
			AS sent (webhook, event, before, status, due, log)
		WHERE deliveries.webhook = sent.webhook AND deliveries.status = before AND deliveries.event = sent.event`

	// LATERAL, ORDER BY and OFFSET 0 make the server find deliveries by an index. Otherwise it reads all of them.
	removeDeliveries = `
		WITH gone AS (
			DELETE FROM deliveries WHERE (webhook, status, event) IN (
				(SELECT of.* FROM webhooks CROSS JOIN unnest(ARRAY['delivered', 'failed']) AS ended CROSS JOIN LATERAL (
					SELECT webhook, status, event FROM deliveries
					WHERE webhook = id AND status = ended AND due <= $1 ORDER BY due LIMIT $2) AS of)
				UNION ALL
				(SELECT of.* FROM webhooks CROSS JOIN LATERAL (
					SELECT webhook, status, event FROM deliveries
					WHERE webhook = id ORDER BY webhook, status, event LIMIT $2) AS of WHERE removed IS NOT NULL)
				LIMIT $2)
			RETURNING webhook, event),
		events_gone AS (
			DELETE FROM events WHERE id IN (SELECT event FROM gone) AND NOT EXISTS (
				SELECT 1 FROM webhooks CROSS JOIN LATERAL (
					SELECT 1 FROM deliveries
					WHERE webhook = webhooks.id AND event = events.id AND status IN ('waiting', 'replaying', 'delivered', 'failed')
						AND (webhook, event) NOT IN (SELECT webhook, event FROM gone) OFFSET 0) AS of
				WHERE webhooks.store = events.store OFFSET 0)),
		forgotten AS (
			DELETE FROM webhooks WHERE removed <= $3 AND NOT EXISTS (
				SELECT 1 FROM deliveries WHERE webhook = webhooks.id ORDER BY webhook, status, event OFFSET 0))
		SELECT 1 FROM gone`

	lease = `
		INSERT INTO leases (name, owner, until)
		SELECT 'webhooks', $1, now + $2 FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
		WHERE leases.owner = excluded.owner OR leases.until <= excluded.until - $2`
)

// addEvents adds the statement that stores the events and deliveries of plants.
func (p *pipeline) addEvents(ctx context.Context, keys []*key) error {
	var events, stores, bodies []string
	var ids []int64
	for _, k := range keys {
		if r := k.first; r.Event != "" {
			events, stores = append(events, r.Event), append(stores, r.Store)
			ids, bodies = append(ids, r.ID), append(bodies, string(r.AppendJSON(nil)))
		}
	}
	return p.add(ctx, addEvents, events, stores, ids, bodies, time.Now().UnixMilli())
}

func (s *Storage) AddWebhook(_ context.Context, h storage.Webhook) error {
	return s.change(true, nil, addWebhook, h.ID, h.Store, h.Enabled, token.Millis(h.Removed), h.Created.UnixMilli(),
		h.Settings)
}

// ChangeWebhook is not repeatable: after it has succeeded, the settings are no longer those of before.
func (s *Storage) ChangeWebhook(_ context.Context, before, after storage.Webhook) error {
	return s.change(false, storage.ErrNoWebhook, changeWebhook, after.Enabled, token.Millis(after.Removed),
		after.Settings, before.ID, before.Settings)
}

func (s *Storage) Webhooks(ctx context.Context, store string) ([]storage.Webhook, error) {
	return collect(ctx, s, s.otherSlots, func(row pgx.CollectableRow) (h storage.Webhook, err error) {
		var created int64
		var removed, due *int64
		err = row.Scan(&h.ID, &h.Store, &h.Enabled, &removed, &created, &h.Settings, &due, &h.Oldest, &h.Replaying)
		h.Created, h.Removed, h.Due = time.UnixMilli(created).UTC(), token.FromMillis(removed), token.FromMillis(due)
		return h, err
	}, allWebhooks, store)
}

func (s *Storage) Deliveries(ctx context.Context, f storage.DeliveryFilter) ([]storage.Delivery, error) {
	sql, args := newestDeliveries, []any{f.Webhook, string(f.Status), f.From, f.Before, f.Limit}
	if !f.Due.IsZero() {
		sql, args = dueDeliveries, []any{f.Webhook, string(f.Status), f.Due.UnixMilli(), f.Limit}
	}
	return collect(ctx, s, s.otherSlots, func(row pgx.CollectableRow) (d storage.Delivery, err error) {
		var due int64
		err = row.Scan(&d.Webhook, &d.Event, &d.Plant, &d.Status, &due, &d.Log)
		d.Due = time.UnixMilli(due).UTC()
		return d, err
	}, sql, args...)
}

func (s *Storage) Body(ctx context.Context, event string) (body string, err error) {
	err = s.read(ctx, s.otherSlots, s.timeouts.Read, func(ctx context.Context, conn *pgx.Conn) error {
		return queryRow(ctx, conn, eventBody, event).Scan(&body)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = storage.ErrNoWebhook
	}
	return body, err
}

func (s *Storage) Backlog(ctx context.Context, webhook string) (deliveries, bytes int64, err error) {
	err = s.read(ctx, s.otherSlots, countTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return queryRow(ctx, conn, backlog, webhook).Scan(&deliveries, &bytes)
	})
	return deliveries, bytes, err
}

func (s *Storage) ChangeDeliveries(_ context.Context, changes []storage.DeliveryChange) error {
	var webhooks, events, before, status, logs []string
	var due []int64
	for _, c := range changes {
		webhooks, events, before = append(webhooks, c.Webhook), append(events, c.Event), append(before, string(c.From))
		status, due, logs = append(status, string(c.Status)), append(due, c.Due.UnixMilli()), append(logs, c.Log)
	}
	return s.change(true, nil, changeDeliveries, webhooks, events, before, status, due, logs)
}

func (s *Storage) RemoveDeliveries(_ context.Context, now time.Time, limit int) (removed int, err error) {
	rows, err := s.execute(true, removeDeliveries, now.UnixMilli(), limit, now.Add(-storage.ForgetAfter).UnixMilli())
	return int(rows), err
}

func (s *Storage) Lease(_ context.Context, owner string, d time.Duration) (held bool, err error) {
	rows, err := s.execute(true, lease, owner, d.Milliseconds())
	return rows == 1 && d > 0, err
}
