package storage

import (
	"context"
	"sync/atomic"
	"time"

	"plantstore/internal/plant"
)

const clearStep = 200 // plants in a batch: other writes may wait for it

// Clear removes the plants of a store in batches, and counts them in removed. It ends between two batches when ctx
// does. After each batch, it pauses for rest times as long as the batch took.
func Clear(ctx context.Context, from Plants, store string, rest time.Duration, removed *atomic.Int64) error {
	for ctx.Err() == nil {
		started := time.Now()
		page, err := from.List(context.WithoutCancel(ctx), store, nil, clearStep)
		if err != nil || len(page) == 0 {
			return err
		}
		edits := make([]plant.Edit, len(page))
		for i, p := range page {
			edits[i].Key = plant.Key{Store: store, ID: p.ID}
		}
		if _, err := from.EditBatch(ctx, edits); err != nil {
			return err
		}
		removed.Add(int64(len(page)))
		select {
		case <-time.After(rest * time.Since(started)):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
