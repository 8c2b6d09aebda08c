package sqlite

import (
	"context"
	"slices"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage/tables"
)

const (
	enabledWebhooks = "SELECT id FROM webhooks WHERE store = ? AND enabled"

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

// insertEvents[n] and insertDeliveries[n] are the inserts of n rows, with four arguments each.
var (
	insertEvents     = insertsOf("INSERT INTO events (id, store, plant, body) VALUES ", "(?, ?, ?, ?)")
	insertDeliveries = insertsOf("INSERT INTO deliveries (webhook, status, event, due, bytes, log) VALUES ",
		"(?, 'waiting', ?, ?, ?, '')")
)

// addEvents stores the events and deliveries of plants that the transaction has created.
func (w *writer) addEvents(plants ...*plant.Record) error {
	now, endpoints := time.Now().UnixMilli(), map[string][]string{} // by store
	var events, deliveries []any
	for _, p := range plants {
		if p.Event == "" {
			continue
		}
		ids, known := endpoints[p.Store]
		if !known {
			for row, err := range query(w.conn, enabledWebhooks, p.Store) {
				if err != nil {
					return err
				}
				ids = append(ids, row.ColumnText(0))
			}
			endpoints[p.Store] = ids
		}
		body := string(p.AppendJSON(nil))
		if len(ids) > 0 {
			events = append(events, p.Event, p.Store, p.ID, body)
		}
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

func (s *Storage) Lease(_ context.Context, owner string, d time.Duration) (held bool, err error) {
	now := time.Now()
	args := []any{owner, now.Add(d).UnixMilli(), now.UnixMilli()}
	changed, err := database{s}.Write(true, tables.Statement{SQL: lease, Args: args})
	return changed == 1 && d > 0, err
}
