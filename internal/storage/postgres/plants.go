package postgres

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// All statements on plants. A table that is distributed over servers by id or by store must be able to run them:
// inserts of many rows, reads and writes by (store, id), pages in the order of the ids, counts.
// The rows of an insert and the edits of a batch are sorted by key, so that concurrent batches can't deadlock.
const (
	insertPlants = `INSERT INTO plants (store, id, name, tag)
		SELECT store, id, name, tag
		FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS sent (store, id, name, tag)`
	selectPlants = "SELECT id, name, tag FROM plants WHERE store = $1 AND id = ANY($2::bigint[])"

	// The first query finds the id with which the page reaches PageBytes. The server knows the lengths without reading
	// the text.
	listPlants = `
		WITH page AS (
			SELECT id, octet_length(name) + coalesce(octet_length(tag), 0) AS size
			FROM plants WHERE store = $1 AND id >= $2 ORDER BY id LIMIT $3
		), sums AS (SELECT id, sum(size) OVER (ORDER BY id) AS total FROM page)
		SELECT id, name, tag FROM plants WHERE store = $1 AND id >= $2
			AND id <= (SELECT coalesce(min(id) FILTER (WHERE total >= $4), max(id)) FROM sums) ORDER BY id LIMIT $3`

	getPlant       = "SELECT name, tag FROM plants WHERE store = $1 AND id = $2"
	countPlants    = "SELECT count(*) FROM plants WHERE store = $1"
	replacePlant   = "UPDATE plants SET name = $3, tag = $4 WHERE store = $1 AND id = $2"
	replaceIfEqual = replacePlant + " AND name = $5 AND tag IS NOT DISTINCT FROM $6"
	rewritePlant   = "UPDATE plants SET name = name WHERE store = $1 AND id = $2"
	removePlant    = "DELETE FROM plants WHERE store = $1 AND id = $2"
	removeIfEqual  = removePlant + " AND name = $3 AND tag IS NOT DISTINCT FROM $4"
	firstStore     = "SELECT store FROM plants ORDER BY store LIMIT 1"
	nextStore      = "SELECT store FROM plants WHERE store > $1 ORDER BY store LIMIT 1"
	lockPlant      = "SELECT 1 FROM plants WHERE store = $1 AND id = $2 FOR UPDATE"
)

// repeatPeriod is how long batches are read before they are inserted, after one had an existing id: repeats come in
// groups, and the server logs every insert that fails.
const repeatPeriod = time.Second

const countTimeout = 30 * time.Second // a count reads all plants of a store

// CreateBatch implements storage.Plants.
//
// If the connection is lost while the server may be committing, reading the plants would not determine the
// outcome: one that is absent now may be committed a moment later. Sending the batch again does: the server
// makes an insert wait for every uncommitted insert of the same key, so afterwards each plant is stored, by
// the first attempt (then its outcome is Same) or by the second, or its key is taken. An attempt that
// reaches the server even later finds its keys stored, and stores nothing. If no attempt succeeds in time,
// the error is storage.ErrUnknown.
func (s *Storage) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	if len(plants) == 0 {
		return nil, nil
	}
	b := newBatch(plants)
	readFirst := time.Since(time.Unix(0, s.lastRepeat.Load())) < repeatPeriod
	err := s.write(s.createSlots, true, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		return b.create(ctx, conn, readFirst)
	})
	if err != nil {
		return nil, err
	}
	outcomes := make([]plant.Outcome, len(plants))
	for i := range outcomes {
		if outcomes[i] = b.outcome(i); outcomes[i] != plant.Created {
			s.lastRepeat.Store(time.Now().UnixNano())
		}
	}
	return outcomes, nil
}

// Get implements storage.Plants.
func (s *Storage) Get(ctx context.Context, storeName string, id int64) (plant.Plant, error) {
	p := plant.Plant{ID: id}
	err := s.read(ctx, s.otherSlots, s.timeouts.Read, func(ctx context.Context, conn *pgx.Conn) error {
		err := queryRow(ctx, conn, getPlant, storeName, id).Scan(&p.Name, &p.Tag)
		return cmp.Or(err, storage.CheckText(&p.Name, p.Tag))
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = plant.ErrNotFound
	}
	if err != nil {
		return plant.Plant{}, err
	}
	return p, nil
}

// List implements storage.Plants.
func (s *Storage) List(ctx context.Context, storeName string, after *int64, limit int) (page []plant.Plant, err error) {
	first, ok := storage.FirstAfter(after)
	if !ok {
		return nil, nil
	}
	err = s.read(ctx, s.otherSlots, s.timeouts.Read, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := query(ctx, conn, listPlants, storeName, first, limit, storage.PageBytes)
		if err != nil {
			return err
		}
		page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p plant.Plant, err error) {
			err = row.Scan(&p.ID, &p.Name, &p.Tag)
			return p, cmp.Or(err, storage.CheckText(&p.Name, p.Tag))
		})
		return err
	})
	return page, err
}

// Count implements storage.Plants.
func (s *Storage) Count(ctx context.Context, storeName string) (n int64, err error) {
	err = s.read(ctx, s.otherSlots, countTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return queryRow(ctx, conn, countPlants, storeName).Scan(&n)
	})
	return n, err
}

// Stores implements storage.Plants. SELECT DISTINCT would read the whole index, and Citus refuses the recursive query
// that would not.
func (s *Storage) Stores(ctx context.Context) (names []string, err error) {
	text, args := firstStore, []any(nil)
	for {
		var name string
		err := s.read(ctx, s.otherSlots, s.timeouts.Read, func(ctx context.Context, conn *pgx.Conn) error {
			return queryRow(ctx, conn, text, args...).Scan(&name)
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		text, args = nextStore, []any{name}
	}
}

// Shard implements storage.Plants.
func (s *Storage) Shard(plant.Key) (server, shard int) { return 0, 0 }
