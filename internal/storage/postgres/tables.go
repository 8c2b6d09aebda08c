package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/storage/tables"
	"plantstore/internal/token"
)

// database implements tables.DB.
type database struct{ *Storage }

func (d database) Read(ctx context.Context, purpose tables.Purpose, sql string, args ...any) (all [][]any, err error) {
	slots, timeout := d.otherSlots, d.timeouts.Read
	switch purpose {
	case tables.Lookup:
		slots = d.tokenSlots
	case tables.Count:
		timeout = countTimeout
	}
	err = d.read(ctx, slots, timeout, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := query(ctx, conn, sql, args...)
		if err == nil {
			all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		}
		return err
	})
	return all, err
}

func (d database) Write(repeatable bool, statements ...tables.Statement) (changed int64, err error) {
	err = d.write(d.otherSlots, repeatable, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		changed, stored, err = exec(ctx, conn, statements...)
		return stored, err
	})
	return changed, err
}

const (
	rotateToken = "WITH changed AS (%s RETURNING hash) INSERT INTO tokens (" + tables.TokenColumns + `)
		SELECT $12, $13::bytea, $14, $15, $16, $17::bigint, $18::bigint, $19, $20::bigint, $21::bigint FROM changed`
	// One statement: a Citus cluster writes each to every node.
	recordUses = `
		UPDATE tokens SET last_used = used.at FROM unnest($1::bytea[], $2::bigint[]) AS used (hash, at)
		WHERE tokens.hash = used.hash AND coalesce(last_used, 0) < used.at`
)

func (s *Storage) ChangeToken(_ context.Context, before, after token.Token, add *token.Token) error {
	change := tables.ChangeToken(before, after)
	if add != nil {
		change.SQL = fmt.Sprintf(rotateToken, change.SQL)
		change.Args = append(change.Args, tables.AddToken(*add).Args...)
	}
	changed, err := database{s}.Write(false, change)
	switch {
	case hasCode(err, uniqueViolation):
		return token.ErrNameTaken
	case err == nil && changed == 0:
		return token.ErrChanged
	}
	return err
}

func (s *Storage) RecordUses(_ context.Context, uses []token.Use) error {
	hashes, times := make([][]byte, len(uses)), make([]int64, len(uses))
	for i, use := range uses {
		hashes[i], times[i] = use.Hash[:], use.At.UnixMilli()
	}
	_, err := database{s}.Write(true, tables.Statement{SQL: recordUses, Args: []any{hashes, times}})
	return err
}

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
