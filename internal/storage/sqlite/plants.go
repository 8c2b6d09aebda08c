package sqlite

import (
	"context"
	"errors"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

const (
	getPlant   = "SELECT id, name, tag FROM plants WHERE store = ? AND id = ?"
	listPlants = "SELECT id, name, tag FROM plants WHERE store = ? AND id >= ? ORDER BY id LIMIT ?"
)

// maxRows bounds the rows of one insert. A statement with many rows costs much less than a statement for each row, and
// beyond 64 rows little more is saved.
const maxRows = 64

// insertPlants[n] is the insert of n rows. OR IGNORE, because no constraint can stop it halfway. With ON CONFLICT DO
// NOTHING a NULL could, so that SQLite would copy every page before the statement changes it.
var insertPlants = insertsOf("INSERT OR IGNORE INTO plants (store, id, name, tag) VALUES ", "(?, ?, ?, ?)")

// insertsOf returns inserts of up to maxRows rows, by their number.
func insertsOf(insert, row string) (queries [maxRows + 1]string) {
	for rows := range queries {
		queries[rows] = insert + strings.TrimSuffix(strings.Repeat(row+", ", rows), ", ")
	}
	return queries
}

var errConflict = errors.New("an id of the batch exists")

func (s *Storage) CreateBatch(_ context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	outcomes := make([]plant.Outcome, len(plants))
	// Nearly always every id is new, and then the number of inserted rows gives all outcomes. Otherwise the
	// transaction is rolled back and repeated row by row, which also decides a key that occurs twice.
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
	// In the order of the keys, neighbours go to the same page, and a full page is followed by a new one
	// instead of being split.
	order := make([]*plant.Record, len(plants))
	for i := range plants {
		order[i], outcomes[i] = &plants[i], plant.Created
	}
	slices.SortFunc(order, func(a, b *plant.Record) int { return a.Key().Compare(b.Key()) })
	for rows := range slices.Chunk(order, maxRows) {
		inserted, err := w.insert(rows...)
		if err != nil {
			return err
		}
		if inserted != len(rows) {
			return errConflict
		}
		if err := w.addEvents(rows...); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) insertEach(plants []plant.Record, outcomes []plant.Outcome) error {
	for i := range plants {
		p := &plants[i]
		inserted, err := w.insert(p)
		if err != nil {
			return err
		}
		if inserted == 1 {
			outcomes[i] = plant.Created
			if err := w.addEvents(p); err != nil {
				return err
			}
			continue
		}
		stored, err := getFrom(w.conn, p.Store, p.ID)
		if errors.Is(err, plant.ErrNotFound) { // though its key is not free
			err = sqlite.ResultCorrupt.ToError()
		}
		if err != nil {
			return err
		}
		outcomes[i] = plant.Taken
		if stored.Equal(p.Content) {
			outcomes[i] = plant.Same
		}
	}
	return nil
}

// insert stores the rows, at most maxRows, whose keys are free, and returns how many that were. After an error some of
// them may be stored until the transaction is rolled back.
func (w *writer) insert(rows ...*plant.Record) (int, error) {
	args := make([]any, 0, 4*len(rows))
	for _, p := range rows {
		args = append(args, p.Store, p.ID, p.Name, p.Tag)
	}
	if err := exec(w.conn, insertPlants[len(rows)], args...); err != nil {
		return 0, err
	}
	return w.conn.Changes(), nil
}

// plantOf reads a row of getPlant or listPlants.
func plantOf(row *sqlite.Stmt) (plant.Plant, error) {
	p := plant.Plant{ID: row.ColumnInt64(0), Content: plant.Content{Name: row.ColumnText(1)}}
	if !row.ColumnIsNull(2) {
		p.Tag = new(row.ColumnText(2))
	}
	return p, storage.CheckText(&p.Name, p.Tag)
}

func (s *Storage) Shard(plant.Key) (server, shard int) { return 0, 0 }

// Get implements storage.Plants. It takes microseconds, so that the end of ctx does not interrupt it: that would need a
// goroutine.
func (s *Storage) Get(ctx context.Context, storeName string, id int64) (plant.Plant, error) {
	conn, err := s.readers.get(ctx)
	if err != nil {
		return plant.Plant{}, err
	}
	defer s.readers.put(conn)
	p, err := getFrom(conn, storeName, id)
	return p, s.damage.Record(translate(err))
}

func getFrom(conn *sqlite.Conn, storeName string, id int64) (plant.Plant, error) {
	for row, err := range query(conn, getPlant, storeName, id) {
		if err != nil {
			return plant.Plant{}, err
		}
		return plantOf(row)
	}
	return plant.Plant{}, plant.ErrNotFound
}

func (s *Storage) List(ctx context.Context, storeName string, after *int64, limit int) (page []plant.Plant, err error) {
	first, ok := storage.FirstAfter(after)
	if !ok {
		return nil, nil
	}
	size := 0
	for row, err := range s.readers.rows(ctx, listPlants, storeName, first, int64(limit)) {
		if err != nil {
			return nil, err
		}
		if size >= storage.PageBytes {
			break // each step reads one row, and its text is not yet in memory
		}
		p, err := plantOf(row)
		if err != nil {
			return nil, s.damage.Record(err)
		}
		page = append(page, p)
		size += p.Size()
	}
	return page, nil
}
