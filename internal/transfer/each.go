package transfer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	large    = 1 << 20     // bytes of a plant; at most one larger plant is in flight
	endGrace = time.Second // for calls in flight when one fails
)

// Each calls do for each row of a file, with up to parallel calls at the same time, until the file ends, a call fails
// or ctx ends. Rows with the same id are done one after the other, in the order of the file. It returns the first
// error, and a line: do has returned nil for all rows that start before it. It does not wait for a read of the file
// that blocks.
func Each(ctx context.Context, r *Reader, parallel int, do func(context.Context, Row) error) (line int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reading sync.Mutex
	ids := idSet{ids: map[int64]bool{}}
	ids.removed.L = &ids.mu
	lines := make([]atomic.Int64, parallel+1) // of the row that each worker is at, or 0; the last is that of the next row
	next := &lines[parallel]
	next.Store(1)
	one := func(at *atomic.Int64) (ok bool, err error) {
		reading.Lock()
		at.Store(r.line)
		row, ok := r.Next()
		at.Store(row.Line)
		next.Store(r.line)
		if ok && row.Err == nil {
			ids.add(row.Plant.ID)
			defer ids.remove(row.Plant.ID)
		}
		if row.Plant.Size() > large {
			defer reading.Unlock()
		} else {
			reading.Unlock()
		}
		if !ok {
			return false, nil
		}
		return true, do(ctx, row)
	}
	var wg sync.WaitGroup
	for i := range parallel {
		wg.Go(func() {
			for ctx.Err() == nil {
				ok, err := one(&lines[i])
				if !ok {
					return
				}
				if err != nil {
					cancel(err)
					return
				}
				lines[i].Store(0)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(endGrace):
		}
	}
	line = next.Load() // first, because a worker sets its own line before that of the next row
	for i := range lines {
		if l := lines[i].Load(); l != 0 {
			line = min(line, l)
		}
	}
	return line, context.Cause(ctx)
}

// idSet is the ids of the plants in flight.
type idSet struct {
	mu      sync.Mutex
	removed sync.Cond
	ids     map[int64]bool
}

// add adds an id. It waits until the set does not contain it.
func (s *idSet) add(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.ids[id] {
		s.removed.Wait()
	}
	s.ids[id] = true
}

func (s *idSet) remove(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
	s.removed.Signal() // only the worker that reads waits
}
