package share

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Slots lets few operations run at a time, and one of each owner. The operations of an owner wait for each other
// first, so that only one of them competes with those of other owners. A Slots is safe for concurrent use.
type Slots[Owner comparable] struct {
	all *semaphore.Weighted

	mu  sync.Mutex
	own map[Owner]*ownSlot // of owners whose operations wait or run
}

type ownSlot struct {
	*semaphore.Weighted
	operations int // that wait or run
}

// NewSlots returns slots for n operations at a time.
func NewSlots[Owner comparable](n int) *Slots[Owner] {
	return &Slots[Owner]{all: semaphore.NewWeighted(int64(n)), own: map[Owner]*ownSlot{}}
}

// Acquire waits for a slot. If ctx ends first, it returns the error of ctx. Otherwise the caller must call release
// once.
func (s *Slots[Owner]) Acquire(ctx context.Context, owner Owner) (release func(), err error) {
	own := s.enter(owner)
	if err := own.Acquire(ctx, 1); err != nil {
		s.leave(owner, own)
		return nil, err
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		own.Release(1)
		s.leave(owner, own)
		return nil, err
	}
	return func() {
		s.all.Release(1)
		own.Release(1)
		s.leave(owner, own)
	}, nil
}

func (s *Slots[Owner]) enter(owner Owner) *ownSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.own[owner]
	if own == nil {
		own = &ownSlot{Weighted: semaphore.NewWeighted(1)}
		s.own[owner] = own
	}
	own.operations++
	return own
}

func (s *Slots[Owner]) leave(owner Owner, own *ownSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.operations--; own.operations == 0 {
		delete(s.own, owner)
	}
}
