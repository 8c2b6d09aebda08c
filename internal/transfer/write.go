package transfer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"plantstore/internal/plant"
)

// A batch is written when it has one of these.
const (
	batchPlants = 4096
	batchBytes  = 1 << 20
)

// writer writes to a target, with as many writes in flight as the target has lanes. After the first error it writes
// nothing more.
type writer struct {
	to      Target
	ctx     context.Context // ends with the first error, which is its cause
	cancel  context.CancelCauseFunc
	jobs    chan func(context.Context) error
	wg      sync.WaitGroup
	created atomic.Int64

	batch []plant.Record
	bytes int
}

func newWriter(ctx context.Context, to Target) *writer {
	w := &writer{to: to, jobs: make(chan func(context.Context) error)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	for range to.Lanes() {
		w.wg.Go(func() {
			for job := range w.jobs {
				if err := job(w.ctx); err != nil {
					w.cancel(fmt.Errorf("write to the target: %w", err))
				}
			}
		})
	}
	return w
}

// do runs a job when a lane is free. Its error ends w.ctx.
func (w *writer) do(job func(context.Context) error) error {
	select {
	case w.jobs <- job:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

// create adds a plant to the batch and writes the batch when it is large enough.
func (w *writer) create(r plant.Record) error {
	w.batch = append(w.batch, r)
	w.bytes += r.Size()
	if len(w.batch) < batchPlants && w.bytes < batchBytes {
		return nil
	}
	return w.flush()
}

// flush writes the batch.
func (w *writer) flush() error {
	batch := w.batch
	w.batch, w.bytes = make([]plant.Record, 0, len(batch)), 0
	if len(batch) == 0 {
		return nil
	}
	return w.do(func(ctx context.Context) error {
		outcomes, err := w.to.CreateBatch(ctx, batch)
		if err != nil {
			return err
		}
		created := int64(0)
		for i, outcome := range outcomes {
			switch outcome {
			case plant.Created:
				created++
			case plant.Taken:
				return fmt.Errorf("plant %d of store %s was created there during the copy; "+
					"stop everything that writes to the target", batch[i].ID, batch[i].Store)
			}
		}
		w.created.Add(created)
		return nil
	})
}

// close waits for the writes in flight and returns the first error that do has not returned.
func (w *writer) close() error {
	close(w.jobs)
	w.wg.Wait()
	err := context.Cause(w.ctx)
	w.cancel(nil)
	return err
}
