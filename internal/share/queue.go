package share

import (
	"context"
	"slices"
	"sync"
)

// Queue lets operations wait for a unit of a pool, within the shares of the pool. It gives free units to owners
// round-robin, and each to the owner's operation that has waited longest, so an owner with many operations does not
// delay those of others. A Queue is safe for concurrent use.
type Queue[Owner comparable] struct {
	Pool Pool[Owner] // must have a capacity that is not soft

	mu      sync.Mutex
	waiting [][]*waiter[Owner] // by owner, in the order in which owners get units; no element is empty
}

type waiter[Owner comparable] struct {
	claim   Claim[Owner]
	granted chan struct{} // closed when the claim has its unit
}

// Acquire waits for a unit. If ctx ends first, it returns the error of ctx. Otherwise the caller must call release
// once.
func (q *Queue[Owner]) Acquire(ctx context.Context, owner Owner) (release func(), err error) {
	w := &waiter[Owner]{q.Pool.Claim(owner), make(chan struct{})}
	q.add(w)
	select {
	case <-w.granted:
	case <-ctx.Done():
		if q.remove(w) {
			return nil, ctx.Err()
		}
	}
	return func() {
		w.claim.Release()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.grant()
	}, nil
}

func (q *Queue[Owner]) add(w *waiter[Owner]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.waiting, func(all []*waiter[Owner]) bool { return all[0].claim.owner == w.claim.owner })
	if i >= 0 {
		q.waiting[i] = append(q.waiting[i], w)
	} else {
		q.waiting = append(q.waiting, []*waiter[Owner]{w})
	}
	q.grant()
}

// remove removes a waiter. It reports false if the waiter has its unit already.
func (q *Queue[Owner]) remove(w *waiter[Owner]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, all := range q.waiting {
		at := slices.Index(all, w)
		if at < 0 {
			continue
		}
		q.waiting[i] = slices.Delete(all, at, at+1)
		if len(q.waiting[i]) == 0 {
			q.waiting = slices.Delete(q.waiting, i, i+1)
		}
		return true
	}
	return false
}

// grant distributes the free units. An owner that gets one moves to the end. The caller holds mu.
func (q *Queue[Owner]) grant() {
	for i := 0; i < len(q.waiting); {
		all := q.waiting[i]
		if all[0].claim.Grow(1) != nil {
			i++
			continue
		}
		close(all[0].granted)
		q.waiting = slices.Delete(q.waiting, i, i+1)
		if len(all) > 1 {
			q.waiting = append(q.waiting, all[1:])
		}
	}
}
