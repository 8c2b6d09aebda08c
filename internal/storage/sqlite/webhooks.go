package sqlite

import (
	"context"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage/tables"
)

const (
	addEvent = `
		INSERT INTO events (id, store, plant, body)
		SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT 1 FROM webhooks WHERE store = $2 AND enabled)`
	addDeliveries = `
		INSERT INTO deliveries (webhook, status, event, due, bytes, log)
		SELECT id, 'waiting', $1, $2, $3, '' FROM webhooks WHERE store = $4 AND enabled`

	// CROSS JOIN makes SQLite look up the deliveries of each endpoint by the index.
	expiredDeliveries = `
		SELECT webhook, status, event, due FROM webhooks CROSS JOIN deliveries
			ON webhook || status IN (id || 'delivered', id || 'failed') WHERE due <= $1
		UNION ALL SELECT webhook, status, event, due FROM webhooks CROSS JOIN deliveries ON webhook = id
			WHERE removed IS NOT NULL
		LIMIT $2`

	lease = `
		INSERT INTO leases (name, owner, until) VALUES ('webhooks', ?, ?)
		ON CONFLICT DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE owner = excluded.owner OR until <= ?`
)

// addEvents stores the events and deliveries of plants that the transaction has created.
func (w *writer) addEvents(plants ...*plant.Record) error {
	now := time.Now().UnixMilli()
	for _, p := range plants {
		if p.Event == "" {
			continue
		}
		body := string(p.AppendJSON(nil))
		if err := exec(w.conn, addEvent, p.Event, p.Store, p.ID, body); err != nil {
			return err
		}
		if err := exec(w.conn, addDeliveries, p.Event, now, int64(len(body)), p.Store); err != nil {
			return err
		}
	}
	return nil
}

func (s *Storage) Lease(_ context.Context, owner string, d time.Duration) (held bool, err error) {
	now := time.Now()
	args := []any{owner, now.Add(d).UnixMilli(), now.UnixMilli()}
	changed, err := database{s}.Write(true, tables.Statement{SQL: lease, Args: args})
	return changed == 1 && d > 0, err
}
