package sqlite

import (
	"context"
	"errors"

	"plantstore/internal/plant"
)

const (
	replacePlant = "UPDATE plants SET name = ?, tag = ? WHERE store = ? AND id = ?"
	removePlant  = "DELETE FROM plants WHERE store = ? AND id = ?"
)

// EditBatch implements storage.Plants. A transaction in which no edit can be made writes nothing and needs no sync.
func (s *Storage) EditBatch(_ context.Context, edits []plant.Edit) ([]plant.Outcome, error) {
	outcomes := make([]plant.Outcome, len(edits))
	err := s.writer.tx(func() (err error) {
		for _, i := range plant.ByKey(edits, func(e *plant.Edit) plant.Key { return e.Key }) { // see insertAll
			if outcomes[i], err = s.writer.edit(&edits[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (w *writer) edit(e *plant.Edit) (plant.Outcome, error) {
	stored, err := getFrom(w.conn, e.Store, e.ID)
	switch {
	case errors.Is(err, plant.ErrNotFound):
		return plant.Absent, nil
	case err != nil:
		return 0, err
	case e.Seen != nil && !stored.Equal(*e.Seen):
		return plant.Changed, nil
	case e.To == nil:
		return plant.Removed, exec(w.conn, removePlant, e.Store, e.ID)
	}
	return plant.Replaced, exec(w.conn, replacePlant, e.To.Name, e.To.Tag, e.Store, e.ID)
}
