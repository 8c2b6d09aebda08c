package transfer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"plantstore/internal/plant"
)

// A batch is written when it reaches one of these limits, and all batches when they reach maxPending bytes together.
const (
	batchPlants = 4096
	shardPlants = 1024 // instead, if there are several shards: the planner of Citus takes longer for larger batches
	batchBytes  = 1 << 20
	maxPending  = 16 << 20
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

	batches map[int]*batch // by shard
	pending int            // bytes of all batches
	servers int            // for each of which there are to.Lanes() goroutines
	limit   int            // plants of a batch
}

// batch holds plants of one shard that are not written yet.
type batch struct {
	plants []plant.Record
	bytes  int
}

func newWriter(ctx context.Context, to Target) *writer {
	w := &writer{to: to, jobs: make(chan func(context.Context) error), batches: map[int]*batch{}, limit: batchPlants}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.addServer()
	return w
}

// addServer starts the goroutines that write to one more server of the target.
func (w *writer) addServer() {
	w.servers++
	for range w.to.Lanes() {
		w.wg.Go(func() {
			for job := range w.jobs {
				if err := job(w.ctx); err != nil {
					w.cancel(fmt.Errorf("write to the target: %w", err))
				}
			}
		})
	}
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

// create adds a plant to the batch of its shard and writes batches that are large enough.
func (w *writer) create(r plant.Record) error {
	server, shard := w.to.Shard(r.Key())
	for server >= w.servers {
		w.addServer()
	}
	if shard > 0 {
		w.limit = shardPlants
	}
	b := w.batches[shard]
	if b == nil {
		b = new(batch)
		w.batches[shard] = b
	}
	b.plants = append(b.plants, r)
	b.bytes += r.Size()
	w.pending += r.Size()
	if w.pending >= maxPending {
		return w.flush()
	}
	if len(b.plants) < w.limit && b.bytes < batchBytes {
		return nil
	}
	return w.write(shard)
}

// flush writes all batches.
func (w *writer) flush() error {
	for shard := range w.batches {
		if err := w.write(shard); err != nil {
			return err
		}
	}
	return nil
}

// write writes the batch of a shard.
func (w *writer) write(shard int) error {
	plants := w.batches[shard].plants
	w.pending -= w.batches[shard].bytes
	delete(w.batches, shard)
	return w.do(func(ctx context.Context) error {
		outcomes, err := w.to.CreateBatch(ctx, plants)
		if err != nil {
			return err
		}
		for i, outcome := range outcomes {
			switch outcome {
			case plant.Created:
				w.created.Add(1)
			case plant.Taken:
				return fmt.Errorf("plant %d of store %s was created there during the copy; "+
					"stop everything that writes to the target", plants[i].ID, plants[i].Store)
			}
		}
		return nil
	})
}

// edit replaces or removes a plant when a lane is free.
func (w *writer) edit(e plant.Edit) error {
	return w.do(func(ctx context.Context) error {
		outcomes, err := w.to.EditBatch(ctx, []plant.Edit{e})
		if err != nil {
			return err
		}
		return outcomes[0].Err()
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
