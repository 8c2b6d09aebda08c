package sqlite

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
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
		SELECT webhook, status, event FROM webhooks CROSS JOIN deliveries ON webhook = id
			WHERE status IN ('delivered', 'failed') AND due <= ?
		UNION ALL SELECT webhook, status, event FROM webhooks CROSS JOIN deliveries ON webhook = id
			WHERE removed IS NOT NULL
		LIMIT ?`
	removeDelivery = "DELETE FROM deliveries WHERE webhook = ? AND status = ? AND event = ?"
	removeEvent    = `
		DELETE FROM events WHERE id = ? AND NOT EXISTS (
			SELECT 1 FROM webhooks JOIN deliveries ON webhook = webhooks.id
			WHERE webhooks.store = events.store AND event = events.id
				AND status IN ('waiting', 'replaying', 'delivered', 'failed'))`
	removedWebhooks = "SELECT id FROM webhooks WHERE removed <= ?"
	forgetWebhooks  = `
		DELETE FROM webhooks WHERE removed <= ? AND NOT EXISTS (SELECT 1 FROM deliveries WHERE webhook = webhooks.id)`

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

// RemoveDeliveries starts a transaction, for which creates wait, only if there is something to remove.
func (s *Storage) RemoveDeliveries(ctx context.Context, now time.Time, limit int) (removed int, err error) {
	ms, forget := now.UnixMilli(), now.Add(-storage.ForgetAfter).UnixMilli()
	expired, err := collect(ctx, s.readers, func(row *sqlite.Stmt) (key [3]string, _ error) {
		return [...]string{row.ColumnText(0), row.ColumnText(1), row.ColumnText(2)}, nil
	}, expiredDeliveries, ms, int64(limit))
	if err != nil {
		return 0, err
	}
	one := func(*sqlite.Stmt) (int, error) { return 1, nil }
	hooks, err := collect(ctx, s.readers, one, removedWebhooks, forget)
	if err != nil || len(expired)+len(hooks) == 0 {
		return 0, err
	}
	return len(expired), s.writer.tx(func() error {
		for _, key := range expired {
			if err := exec(s.writer.conn, removeDelivery, key[0], key[1], key[2]); err != nil {
				return err
			}
			if err := exec(s.writer.conn, removeEvent, key[2]); err != nil {
				return err
			}
		}
		return exec(s.writer.conn, forgetWebhooks, forget)
	})
}

func (s *Storage) Lease(_ context.Context, owner string, d time.Duration) (held bool, err error) {
	err = s.writer.tx(func() error {
		now := time.Now()
		err := exec(s.writer.conn, lease, owner, now.Add(d).UnixMilli(), now.UnixMilli())
		held = s.writer.conn.Changes() == 1 && d > 0
		return err
	})
	return held, err
}
