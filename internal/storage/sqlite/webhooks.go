package sqlite

import (
	"context"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const (
	addWebhook    = "INSERT INTO webhooks (id, store, enabled, removed, created, settings) VALUES (?, ?, ?, ?, ?, ?)"
	changeWebhook = `
		UPDATE webhooks SET enabled = ?, removed = ?, settings = ? WHERE id = ? AND settings = ? AND removed IS NULL`
	allWebhooks = `
		SELECT id, store, enabled, removed, created, settings,
			(SELECT min(due) FROM deliveries WHERE webhook = id AND status = 'waiting'),
			(SELECT min(event) FROM deliveries WHERE webhook = id AND status = 'waiting'),
			EXISTS (SELECT 1 FROM deliveries WHERE webhook = id AND status = 'replaying')
		FROM webhooks WHERE ? = '' OR store = ? ORDER BY created, id`
	enabledWebhooks = "SELECT id FROM webhooks WHERE store = ? AND enabled"

	eventBody        = "SELECT body FROM events WHERE id = ?"
	selectDeliveries = `
		SELECT webhook, event, plant, status, due, log FROM deliveries JOIN events ON events.id = event
		WHERE webhook = ? AND status = ?`
	newestDeliveries = selectDeliveries + " AND event >= ? AND event < ? ORDER BY event DESC LIMIT ?"
	dueDeliveries    = selectDeliveries + " AND due <= ? ORDER BY due LIMIT ?"
	backlog          = `
		SELECT count(*), coalesce(sum(bytes), 0) FROM deliveries WHERE webhook = ? AND status IN ('waiting', 'replaying')`
	changeDelivery = "UPDATE deliveries SET status = ?, due = ?, log = ? WHERE webhook = ? AND status = ? AND event = ?"

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
	removeWebhooksOf = "UPDATE webhooks SET enabled = 0, removed = ? WHERE store = ? AND removed IS NULL"

	lease = `
		INSERT INTO leases (name, owner, until) VALUES ('webhooks', ?, ?)
		ON CONFLICT DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE owner = excluded.owner OR until <= ?`
)

// insertEvents[n] and insertDeliveries[n] are the inserts of n rows.
var (
	insertEvents     = insertsOf("INSERT INTO events (id, store, plant, body) VALUES ", "(?, ?, ?, ?)")
	insertDeliveries = insertsOf("INSERT INTO deliveries (webhook, status, event, due, bytes, log) VALUES ",
		"(?, 'waiting', ?, ?, ?, '')")
)

// addEvents stores the events and deliveries of at most maxRows plants that the transaction has created.
func (w *writer) addEvents(plants ...*plant.Record) error {
	endpoints := map[string][]string{} // by store
	var events, deliveries []any
	now := time.Now().UnixMilli()
	for _, p := range plants {
		if p.Event == "" {
			continue
		}
		ids, ok := endpoints[p.Store]
		if !ok {
			for row, err := range query(w.conn, enabledWebhooks, p.Store) {
				if err != nil {
					return err
				}
				ids = append(ids, row.ColumnText(0))
			}
			endpoints[p.Store] = ids
		}
		if len(ids) == 0 {
			continue
		}
		body := string(p.AppendJSON(nil))
		events = append(events, p.Event, p.Store, p.ID, body)
		for _, id := range ids {
			deliveries = append(deliveries, id, p.Event, now, int64(len(body)))
		}
	}
	for insert, args := range map[*[maxRows + 1]string][]any{&insertEvents: events, &insertDeliveries: deliveries} {
		for rows := range slices.Chunk(args, 4*maxRows) {
			if err := exec(w.conn, insert[len(rows)/4], rows...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Storage) AddWebhook(_ context.Context, h storage.Webhook) error {
	return s.change(nil, addWebhook, h.ID, h.Store, h.Enabled, token.Millis(h.Removed), h.Created.UnixMilli(), h.Settings)
}

func (s *Storage) ChangeWebhook(_ context.Context, before, after storage.Webhook) error {
	return s.change(storage.ErrNoWebhook, changeWebhook, after.Enabled, token.Millis(after.Removed), after.Settings,
		before.ID, before.Settings)
}

func (s *Storage) Webhooks(ctx context.Context, store string) ([]storage.Webhook, error) {
	return collect(ctx, s.readers, func(row *sqlite.Stmt) (storage.Webhook, error) {
		h := storage.Webhook{
			ID: row.ColumnText(0), Store: row.ColumnText(1), Enabled: row.ColumnBool(2), Removed: milliseconds(row, 3),
			Created: milliseconds(row, 4), Settings: row.ColumnText(5),
			Due: milliseconds(row, 6), Oldest: row.ColumnText(7), Replaying: row.ColumnBool(8),
		}
		return h, storage.CheckText(&h.ID, &h.Store, &h.Settings)
	}, allWebhooks, store, store)
}

func (s *Storage) Deliveries(ctx context.Context, f storage.DeliveryFilter) ([]storage.Delivery, error) {
	sql, args := newestDeliveries, []any{f.Webhook, string(f.Status), f.From, f.Before, int64(f.Limit)}
	if !f.Due.IsZero() {
		sql, args = dueDeliveries, []any{f.Webhook, string(f.Status), f.Due.UnixMilli(), int64(f.Limit)}
	}
	return collect(ctx, s.readers, func(row *sqlite.Stmt) (storage.Delivery, error) {
		d := storage.Delivery{
			Webhook: row.ColumnText(0), Event: row.ColumnText(1), Plant: row.ColumnInt64(2),
			Status: storage.Status(row.ColumnText(3)), Due: milliseconds(row, 4), Log: row.ColumnText(5),
		}
		return d, storage.CheckText(&d.Event, &d.Log)
	}, sql, args...)
}

func (s *Storage) Body(ctx context.Context, event string) (body string, err error) {
	found, err := collect(ctx, s.readers, func(row *sqlite.Stmt) (struct{}, error) {
		body = row.ColumnText(0)
		return struct{}{}, storage.CheckText(&body)
	}, eventBody, event)
	if err == nil && len(found) == 0 {
		err = storage.ErrNoWebhook
	}
	return body, err
}

func (s *Storage) Backlog(ctx context.Context, webhook string) (deliveries, bytes int64, err error) {
	_, err = collect(ctx, s.readers, func(row *sqlite.Stmt) (struct{}, error) {
		deliveries, bytes = row.ColumnInt64(0), row.ColumnInt64(1)
		return struct{}{}, nil
	}, backlog, webhook)
	return deliveries, bytes, err
}

func (s *Storage) ChangeDeliveries(_ context.Context, changes []storage.DeliveryChange) error {
	return changeEach(s, changeDelivery, changes, func(c storage.DeliveryChange) []any {
		return []any{string(c.Status), c.Due.UnixMilli(), c.Log, c.Webhook, string(c.From), c.Event}
	})
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

// milliseconds returns the time in a column, or the zero time for NULL.
func milliseconds(row *sqlite.Stmt, column int) time.Time {
	return token.FromMillis(orNil(row, column, row.ColumnInt64))
}
