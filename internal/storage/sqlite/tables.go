package sqlite

import (
	"context"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage/tables"
	"plantstore/internal/token"
)

// database implements tables.DB.
type database struct{ *Storage }

func (d database) Read(ctx context.Context, _ tables.Purpose, text string, args ...any) (rows [][]any, err error) {
	for stmt, err := range d.readers.rows(ctx, text, args...) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, valuesOf(stmt))
	}
	return rows, nil
}

func valuesOf(stmt *sqlite.Stmt) []any {
	row := make([]any, stmt.ColumnCount())
	for i := range row {
		switch stmt.ColumnType(i) {
		case sqlite.TypeInteger:
			row[i] = stmt.ColumnInt64(i)
		case sqlite.TypeText:
			row[i] = stmt.ColumnText(i)
		case sqlite.TypeBlob:
			blob := make([]byte, stmt.ColumnLen(i))
			stmt.ColumnBytes(i, blob)
			row[i] = blob
		case sqlite.TypeFloat: // of no column
			row[i] = stmt.ColumnFloat(i)
		}
	}
	return row
}

func (d database) Write(_ bool, statements ...tables.Statement) (changed int64, err error) {
	err = d.writer.tx(func() error {
		for _, s := range statements {
			if err := exec(d.writer.conn, s.SQL, s.Args...); err != nil {
				return err
			}
			changed += int64(d.writer.conn.Changes())
		}
		return nil
	})
	return changed, err
}

func (s *Storage) ChangeToken(_ context.Context, before, after token.Token, add *token.Token) error {
	return s.writer.tx(func() error {
		err := s.writer.execOne(token.ErrChanged, tables.ChangeToken(before, after))
		if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultConstraint {
			return token.ErrNameTaken
		}
		if err == nil && add != nil {
			err = s.writer.execOne(token.ErrNameTaken, tables.AddToken(*add))
		}
		return err
	})
}

const recordUse = "UPDATE tokens SET last_used = $1 WHERE hash = $2 AND coalesce(last_used, 0) < $1"

func (s *Storage) RecordUses(_ context.Context, uses []token.Use) error {
	var all []tables.Statement
	for _, use := range uses {
		all = append(all, tables.Statement{SQL: recordUse, Args: []any{use.At.UnixMilli(), use.Hash[:]}})
	}
	_, err := database{s}.Write(true, all...)
	return err
}

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
