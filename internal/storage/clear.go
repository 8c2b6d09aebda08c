package storage

import (
	"context"

	"plantstore/internal/plant"
)

// Clear removes up to limit plants of a store in one batch. It returns how many it found; 0 means that the store is
// empty. Other writes may wait for the batch, so a caller with many plants uses a small limit, and pauses after each.
func Clear(ctx context.Context, from Plants, store string, limit int) (removed int, err error) {
	page, err := from.List(ctx, store, nil, limit)
	edits := make([]plant.Edit, len(page))
	for i, p := range page {
		edits[i].Key = plant.Key{Store: store, ID: p.ID}
	}
	if err == nil && len(edits) > 0 {
		_, err = from.EditBatch(ctx, edits)
	}
	if err != nil {
		return 0, err
	}
	return len(edits), nil
}
