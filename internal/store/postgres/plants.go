package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

// Every statement on plants. They must be ones that a table spread over servers by id can run:
// inserts of many rows, reads and writes by (store, id), pages in the order of the ids, counts.
// The rows of an insert come ordered by key, so that batches that meet can't wait for each other.
const (
	insertPlants = `
		INSERT INTO plants (store, id, name, tag)
		SELECT store, id, name, tag FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS sent (store, id, name, tag)`
	insertAbsent = insertPlants + " ON CONFLICT DO NOTHING RETURNING store, id"
	selectPlants = `
		SELECT plants.store, plants.id, plants.name, plants.tag
		FROM unnest($1::text[], $2::bigint[]) AS sent (store, id)
		JOIN plants ON plants.store = sent.store AND plants.id = sent.id`

	// The server sends all rows of a statement, wanted or not. So a list has large plants without their
	// text (the name is null), and each that is wanted is read by itself. No length needs the text.
	listPlants = `
		SELECT id, CASE WHEN octet_length(name) + coalesce(octet_length(tag), 0) <= 65536 THEN name END,
			CASE WHEN octet_length(tag) <= 65536 THEN tag END
		FROM plants WHERE store = $1 AND id >= $2 ORDER BY id LIMIT $3`

	getPlant       = "SELECT name, tag FROM plants WHERE store = $1 AND id = $2"
	countPlants    = "SELECT count(*) FROM plants WHERE store = $1"
	replacePlant   = "UPDATE plants SET name = $3, tag = $4 WHERE store = $1 AND id = $2"
	replaceIfEqual = replacePlant + " AND name = $5 AND tag IS NOT DISTINCT FROM $6"
	removePlant    = "DELETE FROM plants WHERE store = $1 AND id = $2"
	removeIfEqual  = removePlant + " AND name = $3 AND tag IS NOT DISTINCT FROM $4"
)

// Nearly always every id is new. An insert that fails where one is not costs the server half of one
// that gives way to it; after a failure, batches are sent the other way for a while.
const caution = time.Second

const countTimeout = 30 * time.Second // it reads all plants of a store

// CreateBatch implements store.Plants.
//
// Where the connection is lost while the server may be committing, looking for the plants would
// not tell: one that is absent may appear a moment later. Sending the batch again does. The server
// lets an insert wait for any other of the same key that is under way, so afterwards each plant
// is stored, by the first attempt (then it is Same) or by the second, or the key was taken.
// An attempt that reaches the server later still finds its keys there, and stores nothing.
func (s *Store) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	if len(plants) == 0 {
		return nil, nil
	}
	b := newBatch(plants)
	defer b.recycle()
	outcomes := make([]plant.Outcome, len(plants))
	hopeful := time.Since(s.opened)-time.Duration(s.taken.Load()) > caution
	err := s.write(s.lanes, true, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
		if hopeful {
			hopeful = false
			stored, err := b.insertAll(ctx, conn, outcomes)
			if !isTaken(err) {
				return stored, err
			}
			s.taken.Store(int64(time.Since(s.opened)))
		}
		return b.create(ctx, conn, outcomes)
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// Get implements store.Plants.
func (s *Store) Get(ctx context.Context, storeName string, id int64) (plant.New, error) {
	p := plant.New{ID: id}
	err := s.read(ctx, readTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, getPlant, storeName, id).Scan(&p.Name, &p.Tag)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = plant.ErrNotFound
	}
	if err != nil {
		return plant.New{}, err
	}
	return p, nil
}

// List implements store.Plants.
func (s *Store) List(ctx context.Context, storeName string, after *int64, limit int) (page []plant.New, err error) {
	err = s.read(ctx, readTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		page, err = list(ctx, conn, storeName, after, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// list takes one statement, and two more for each large plant.
func list(ctx context.Context, conn *pgx.Conn, storeName string, after *int64, limit int) (page []plant.New, err error) {
	for size := 0; len(page) < limit && size < store.PageBytes; {
		first, ok := store.FirstAfter(after)
		if !ok {
			break
		}
		rows, err := conn.Query(ctx, listPlants, storeName, first, limit-len(page))
		if err != nil {
			return nil, err
		}
		var large *int64
		var name pgtype.Text // null where the plant is large
		for size < store.PageBytes && large == nil && rows.Next() {
			var p plant.New
			if err := rows.Scan(&p.ID, &name, &p.Tag); err != nil {
				return nil, err
			}
			if !name.Valid {
				large = &p.ID
				continue
			}
			p.Name = name.String
			page = append(page, p)
			size += p.Size()
		}
		rows.Close() // reads what is left, and keeps nothing
		if err := rows.Err(); err != nil || large == nil {
			return page, err
		}
		after = large
		p := plant.New{ID: *large}
		err = conn.QueryRow(ctx, getPlant, storeName, p.ID).Scan(&p.Name, &p.Tag)
		if errors.Is(err, pgx.ErrNoRows) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		page = append(page, p)
		size += p.Size()
	}
	return page, nil
}

// Count implements store.Plants.
func (s *Store) Count(ctx context.Context, storeName string) (n int64, err error) {
	err = s.read(ctx, countTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, countPlants, storeName).Scan(&n)
	})
	return n, err
}

// Replace implements store.Plants.
func (s *Store) Replace(ctx context.Context, storeName string, id int64, to plant.Plant, seen *plant.Plant) error {
	if seen == nil {
		return s.change(ctx, storeName, id, nil, replacePlant, storeName, id, to.Name, to.Tag)
	}
	return s.change(ctx, storeName, id, seen, replaceIfEqual, storeName, id, to.Name, to.Tag, seen.Name, seen.Tag)
}

// Remove implements store.Plants.
func (s *Store) Remove(ctx context.Context, storeName string, id int64, seen *plant.Plant) error {
	if seen == nil {
		return s.change(ctx, storeName, id, nil, removePlant, storeName, id)
	}
	return s.change(ctx, storeName, id, seen, removeIfEqual, storeName, id, seen.Name, seen.Tag)
}

const maxChanges = 3 // tries of a change of a plant that others change away and back

// change runs a statement on one plant and, where it changed nothing, finds out why. It is not
// repeated when its outcome is not known: after a success, it would find the plant changed.
func (s *Store) change(ctx context.Context, storeName string, id int64, seen *plant.Plant, sql string, args ...any) error {
	for range maxChanges {
		var rows int64
		err := s.write(s.others, false, func(ctx context.Context, conn *pgx.Conn) (stored bool, err error) {
			rows, stored, err = exec(ctx, conn, sql, args...)
			return stored, err
		})
		if err != nil || rows > 0 {
			return err
		}
		if seen == nil {
			return plant.ErrNotFound
		}
		now, err := s.Get(context.WithoutCancel(ctx), storeName, id)
		if err != nil {
			return err
		}
		if !now.Equal(*seen) {
			break
		}
	}
	return plant.ErrChanged
}
