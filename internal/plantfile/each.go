package plantfile

import (
	"context"
	"io"

	"golang.org/x/sync/errgroup"
)

// Each calls do for each row of a file, with up to parallel calls at the same time, until the file ends, a call fails
// or ctx ends. Rows with the same id are done one after the other, in the order of the file. It holds at most one row
// more than calls, and does not wait for a read of the file that blocks.
func Each(ctx context.Context, r *Reader, parallel int, do func(context.Context, Row) error) error {
	workers, ctx := errgroup.WithContext(ctx)
	queues := make([]chan Row, parallel)
	for i := range queues {
		queues[i] = make(chan Row)
		workers.Go(func() error {
			for {
				select {
				case row, ok := <-queues[i]:
					if !ok {
						return nil
					}
					if err := do(ctx, row); err != nil {
						return err
					}
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		})
	}
	go distribute(ctx, r, queues)
	return workers.Wait()
}

// distribute sends each row to the queue of its id, and then closes the queues.
func distribute(ctx context.Context, r *Reader, queues []chan Row) {
	defer func() {
		for _, queue := range queues {
			close(queue)
		}
	}()
	for {
		row, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			row.Err = err // and this is the last row
		}
		select {
		case queues[uint64(row.Plant.ID)%uint64(len(queues))] <- row:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
