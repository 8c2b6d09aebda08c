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

	// The server sends all rows of a page, including those past PageBytes. So it sends large plants without their text.
	// It knows the lengths without reading the text.
	listPlants = `
		SELECT id, size, CASE WHEN size <= $4 THEN name ELSE '' END, CASE WHEN size <= $4 THEN tag END
		FROM (SELECT *, octet_length(name) + coalesce(octet_length(tag), 0) AS size FROM plants) AS plants
		WHERE store = $1 AND id >= $2 ORDER BY id LIMIT $3`

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

const (
	countTimeout = 30 * time.Second // a count reads all plants of a store
	largePlant   = 64 << 10         // bytes from which a list reads a plant by itself
)

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
	return p, err
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

// list runs one query, and another for each large plant. If one of those was removed meanwhile, it starts again: a page
// that is not full has to be the last.
func list(
	ctx context.Context, conn *pgx.Conn, storeName string, first int64, limit int,
) (page []plant.Plant, err error) {
	rows, err := query(ctx, conn, listPlants, storeName, first, limit, largePlant)
	if err != nil {
		return nil, err
	}
	var large []*plant.Plant
	page = make([]plant.Plant, 0, limit) // must not be moved: large refers to its elements
	for size, total := 0, 0; total < storage.PageBytes && rows.Next(); total += size {
		page = append(page, plant.Plant{})
		p := &page[len(page)-1]
		rows.Scan(&p.ID, &size, &p.Name, &p.Tag) // rows.Err returns its error
		if size > largePlant {
			large = append(large, p)
		}
	}
	rows.Close() // discards the remaining rows
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for _, p := range large {
		err := queryRow(ctx, conn, getPlant, storeName, p.ID).Scan(&p.Name, &p.Tag)
		if errors.Is(err, pgx.ErrNoRows) {
			return list(ctx, conn, storeName, first, limit)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range page {
		err = cmp.Or(err, storage.CheckText(&page[i].Name, page[i].Tag))
	}
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
