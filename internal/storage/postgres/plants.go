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

	// The server sends limit rows, also those past PageBytes. So it sends large plants without their text, whose length it
	// knows without reading it.
	listPlants = `
		SELECT id, size, CASE WHEN size <= $4 THEN name ELSE '' END, CASE WHEN size <= $4 THEN tag END
		FROM (SELECT *, octet_length(name) + coalesce(octet_length(tag), 0) AS size FROM plants) AS plants
		WHERE store = $1 AND id >= $2 ORDER BY id LIMIT $3`

	getPlant       = "SELECT name, tag FROM plants WHERE store = $1 AND id = $2"
	replacePlant   = "UPDATE plants SET name = $3, tag = $4 WHERE store = $1 AND id = $2"
	replaceIfEqual = replacePlant + " AND name = $5 AND tag IS NOT DISTINCT FROM $6"
	rewritePlant   = "UPDATE plants SET name = name WHERE store = $1 AND id = $2"
	removePlant    = "DELETE FROM plants WHERE store = $1 AND id = $2"
	removeIfEqual  = removePlant + " AND name = $3 AND tag IS NOT DISTINCT FROM $4"
	lockPlant      = "SELECT 1 FROM plants WHERE store = $1 AND id = $2 FOR UPDATE"
)

const (
	countTimeout = 30 * time.Second // a count reads all plants of a store
	largePlant   = 256              // bytes above which a list reads the text of a plant in its second query
)

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

// list runs one query, and another if the page has large plants. If one of those was changed meanwhile, it starts
// again: a page that has become shorter or smaller would be taken for the last.
func list(
	ctx context.Context, conn *pgx.Conn, storeName string, first int64, limit int,
) (page []plant.Plant, err error) {
	rows, err := query(ctx, conn, listPlants, storeName, first, limit, largePlant)
	if err != nil {
		return nil, err
	}
	large, size, total := []int64(nil), 0, 0
	for ; total < storage.PageBytes && rows.Next(); total += size {
		var p plant.Plant
		rows.Scan(&p.ID, &size, &p.Name, &p.Tag) // rows.Err returns its error
		page = append(page, p)
		if size > largePlant {
			large = append(large, p.ID)
		}
	}
	rows.Close() // discards the remaining rows
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(large) > 0 {
		found, err := plantsByID(ctx, conn, storeName, large)
		if err != nil {
			return nil, err
		}
		for i, p := range page {
			page[i].Content = cmp.Or(found[p.ID], p.Content)
			total -= page[i].Size()
		}
		if len(found) < len(large) || total > 0 {
			return list(ctx, conn, storeName, first, limit)
		}
	}
	for i := range page {
		err = cmp.Or(err, storage.CheckText(&page[i].Name, page[i].Tag))
	}
	return page, err
}

// plantsByID reads those plants of a store that exist.
func plantsByID(
	ctx context.Context, conn *pgx.Conn, storeName string, ids []int64,
) (found map[int64]plant.Content, err error) {
	rows, err := query(ctx, conn, selectPlants, storeName, ids)
	if err != nil {
		return nil, err
	}
	var p plant.Plant
	found = make(map[int64]plant.Content, len(ids))
	_, err = pgx.ForEachRow(rows, []any{&p.ID, &p.Name, &p.Tag}, func() error {
		found[p.ID] = p.Content
		return nil
	})
	return found, err
}

func (s *Storage) Shard(plant.Key) (server, shard int) { return 0, 0 }
