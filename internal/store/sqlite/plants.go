package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

const (
	insertPlants = "INSERT INTO plants (store, id, name, tag) VALUES "
	insertRow    = "(?, ?, ?, ?)"
	insertUnless = " ON CONFLICT DO NOTHING"

	getPlant     = "SELECT name, tag FROM plants WHERE store = ? AND id = ?"
	listPlants   = "SELECT id, name, tag FROM plants WHERE store = ? AND id >= ? ORDER BY id LIMIT ?"
	countPlants  = "SELECT count(*) FROM plants WHERE store = ?"
	replacePlant = "UPDATE plants SET name = ?, tag = ? WHERE store = ? AND id = ?"
	removePlant  = "DELETE FROM plants WHERE store = ? AND id = ?"
)

// maxRows is how many rows one insert has at most. One statement of 64 rows costs a quarter of 64
// statements; past that, little is saved.
const maxRows = 64

// insertOf is the insert of 1 to maxRows rows, at its number.
var insertOf = func() (queries [maxRows + 1]string) {
	for rows := 1; rows <= maxRows; rows++ {
		queries[rows] = insertPlants + strings.TrimSuffix(strings.Repeat(insertRow+", ", rows), ", ") + insertUnless
	}
	return queries
}()

const pageSize = 4096

var errConflict = errors.New("an id of the batch is there already")

// CreateBatch implements store.Plants.
func (s *Store) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	outcomes := make([]plant.Outcome, len(plants))
	// Nearly always every id is new, and then a count of rows tells all outcomes.
	err := s.writer.tx(func() error { return s.writer.insertAll(plants, outcomes) })
	if errors.Is(err, errConflict) {
		err = s.writer.tx(func() error { return s.writer.insertEach(plants, outcomes) })
	}
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (w *writer) insertAll(plants []plant.Record, outcomes []plant.Outcome) error {
	// In the order of the keys, neighbours go to the same page and a page that is full is
	// followed by a new one rather than split.
	order := make([]*plant.Record, len(plants))
	for i := range plants {
		order[i] = &plants[i]
	}
	slices.SortFunc(order, func(a, b *plant.Record) int {
		return cmp.Or(strings.Compare(a.Store, b.Store), cmp.Compare(a.ID, b.ID))
	})
	for rows := range slices.Chunk(order, maxRows) {
		insert, err := w.statement(insertOf[len(rows)])
		if err != nil {
			return err
		}
		for _, p := range rows {
			insert.row(p)
		}
		w.logged += len(rows)
		changed, err := insert.run()
		if err != nil {
			return err
		}
		if changed != int64(len(rows)) {
			return errConflict
		}
	}
	for i := range outcomes {
		outcomes[i] = plant.Created
	}
	return nil
}

func (w *writer) insertEach(plants []plant.Record, outcomes []plant.Outcome) error {
	insert, err := w.statement(insertOf[1])
	if err != nil {
		return err
	}
	for i := range plants {
		p := &plants[i]
		insert.row(p)
		changed, err := insert.run()
		if err != nil {
			return err
		}
		if changed == 1 {
			outcomes[i] = plant.Created
			continue
		}
		stored, err := w.plant(p.Store, p.ID)
		if err != nil {
			return err
		}
		outcomes[i] = plant.Taken
		if stored.Equal(p.Plant) {
			outcomes[i] = plant.Same
		}
	}
	return nil
}

// row binds one row of an insert.
func (s *statement) row(p *plant.Record) {
	s.string(p.Store)
	s.integer(p.ID)
	s.string(p.Name)
	if p.Tag == nil {
		s.null()
	} else {
		s.string(*p.Tag)
	}
}

// plant reads a plant inside the writer's transaction.
func (w *writer) plant(storeName string, id int64) (plant.Plant, error) {
	row, err := w.row(getPlant, storeName, id)
	if err != nil {
		return plant.Plant{}, err
	}
	if row == nil {
		return plant.Plant{}, plant.ErrNotFound
	}
	p := plant.Plant{Name: row[0].(string)}
	if tag, ok := row[1].(string); ok {
		p.Tag = &tag
	}
	return p, nil
}

// Get implements store.Plants.
func (s *Store) Get(ctx context.Context, storeName string, id int64) (plant.New, error) {
	p := plant.New{ID: id}
	err := s.get.QueryRowContext(ctx, storeName, id).Scan(&p.Name, &p.Tag)
	if errors.Is(err, sql.ErrNoRows) {
		return plant.New{}, plant.ErrNotFound
	}
	return p, translate(err)
}

// List implements store.Plants.
func (s *Store) List(ctx context.Context, storeName string, after *int64, limit int) ([]plant.New, error) {
	first, ok := store.FirstAfter(after)
	if !ok {
		return nil, nil
	}
	rows, err := s.readers.QueryContext(ctx, listPlants, storeName, first, limit)
	if err != nil {
		return nil, translate(err)
	}
	defer rows.Close()
	var page []plant.New
	for size := 0; size < store.PageBytes && rows.Next(); { // each step reads one row
		var p plant.New
		if err := rows.Scan(&p.ID, &p.Name, &p.Tag); err != nil {
			return nil, translate(err)
		}
		page = append(page, p)
		size += p.Size()
	}
	return page, translate(rows.Err())
}

// Count implements store.Plants.
func (s *Store) Count(ctx context.Context, storeName string) (n int64, err error) {
	err = s.readers.QueryRowContext(ctx, countPlants, storeName).Scan(&n)
	return n, translate(err)
}

// Replace implements store.Plants.
func (s *Store) Replace(_ context.Context, storeName string, id int64, to plant.Plant, seen *plant.Plant) error {
	return s.writer.change(storeName, id, seen, func() error {
		_, err := s.writer.exec(replacePlant, to.Name, orNil(to.Tag), storeName, id)
		return err
	})
}

// Remove implements store.Plants.
func (s *Store) Remove(_ context.Context, storeName string, id int64, seen *plant.Plant) error {
	return s.writer.change(storeName, id, seen, func() error {
		_, err := s.writer.exec(removePlant, storeName, id)
		return err
	})
}

// change runs do where the plant is there and, if seen is not nil, equal to it.
func (w *writer) change(storeName string, id int64, seen *plant.Plant, do func() error) error {
	return w.edit(func() error {
		stored, err := w.plant(storeName, id)
		if err != nil {
			return err
		}
		if seen != nil && !stored.Equal(*seen) {
			return plant.ErrChanged
		}
		return do()
	})
}
