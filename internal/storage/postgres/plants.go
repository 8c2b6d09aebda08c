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

	firstFrom = "SELECT id FROM plants WHERE store = $1 AND id >= $2 ORDER BY id LIMIT 1"

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
	if err := s.write(s.createSlots, true, b.create); err != nil {
		return nil, err
	}
	outcomes := make([]plant.Outcome, len(plants))
	for i := range outcomes {
		outcomes[i] = b.outcome(i)
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
	err = s.read(ctx, s.otherSlots, s.timeouts.Read, func(ctx context.Context, conn *pgx.Conn) (err error) {
		page, err = list(ctx, conn, storeName, first, limit)
		return err
	})
	return page, err
}

// list runs one query. Citus runs its parts one after the other, so that a plant may be removed after it was counted. A
// page that is not full is the last one only if no plant follows.
func list(
	ctx context.Context, conn *pgx.Conn, storeName string, first int64, limit int,
) (page []plant.Plant, err error) {
	for size := 0; ; {
		rows, err := query(ctx, conn, listPlants, storeName, first, limit-len(page), storage.PageBytes-size)
		if err != nil {
			return nil, err
		}
		var p plant.Plant
		_, err = pgx.ForEachRow(rows, []any{&p.ID, &p.Name, &p.Tag}, func() error {
			page, size = append(page, p), size+p.Size()
			return storage.CheckText(&p.Name, p.Tag)
		})
		if err != nil || len(page) >= limit || size >= storage.PageBytes || sessionOf(conn).cluster == nil {
			return page, err
		}
		if len(page) > 0 {
			var ok bool
			if first, ok = storage.FirstAfter(&page[len(page)-1].ID); !ok {
				return page, nil
			}
		}
		err = queryRow(ctx, conn, firstFrom, storeName, first).Scan(&first)
		if errors.Is(err, pgx.ErrNoRows) {
			return page, nil
		}
		if err != nil {
			return nil, err
		}
	}
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
