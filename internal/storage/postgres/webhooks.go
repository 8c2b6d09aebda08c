package postgres

import (
	"context"
	"time"

	"plantstore/internal/storage/tables"
)

const (
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

	// LATERAL and ORDER BY make the server find deliveries by an index. Otherwise it reads all of them.
	expiredDeliveries = `
		(SELECT of.* FROM webhooks CROSS JOIN unnest(ARRAY['delivered', 'failed']) AS ended CROSS JOIN LATERAL (
			SELECT webhook, status, event, due FROM deliveries
			WHERE webhook || status = id || ended AND due <= $1 ORDER BY due LIMIT $2) AS of)
		UNION ALL
		(SELECT of.* FROM webhooks CROSS JOIN LATERAL (
			SELECT webhook, status, event, due FROM deliveries
			WHERE webhook = id ORDER BY webhook, status, event LIMIT $2) AS of WHERE removed IS NOT NULL)
		LIMIT $2`

	lease = `
		INSERT INTO leases (name, owner, until)
		SELECT 'webhooks', $1, now + $2 FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
		WHERE leases.owner = excluded.owner OR leases.until <= excluded.until - $2`
)

// addEvents adds the statement that stores the events and deliveries of plants.
func (p *pipeline) addEvents(ctx context.Context, keys []*key) {
	var events, stores, bodies []string
	var ids []int64
	for _, k := range keys {
		if r := k.first; r.Event != "" {
			events, stores = append(events, r.Event), append(stores, r.Store)
			ids, bodies = append(ids, r.ID), append(bodies, string(r.AppendJSON(nil)))
		}
	}
	p.add(ctx, addEvents, events, stores, ids, bodies, time.Now().UnixMilli())
}

func (s *Storage) Lease(_ context.Context, owner string, d time.Duration) (held bool, err error) {
	changed, err := database{s}.Write(true, tables.Statement{SQL: lease, Args: []any{owner, d.Milliseconds()}})
	return changed == 1 && d > 0, err
}
