package share

import (
	"context"
	"sync"
)

// Slots lets few operations run at a time, and one of each owner. The operations of an owner wait for each other
// first, so that only one of them competes with those of other owners. A Slots is safe for concurrent use.
type Slots[Owner comparable] struct {
	all semaphore

	mu  sync.Mutex
	own map[Owner]*ownSlot // of owners whose operations wait or run
}

type ownSlot struct {
	semaphore
	operations int // that wait or run
}

// semaphore has an element for each operation that holds it.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewSlots returns slots for n operations at a time.
func NewSlots[Owner comparable](n int) *Slots[Owner] {
	return &Slots[Owner]{all: make(semaphore, n), own: map[Owner]*ownSlot{}}
}

// Acquire waits for a slot. If ctx ends first, it returns the error of ctx. Otherwise the caller must call release
// once.
func (s *Slots[Owner]) Acquire(ctx context.Context, owner Owner) (release func(), err error) {
	own := s.enter(owner)
	if err := own.acquire(ctx); err != nil {
		s.leave(owner, own)
		return nil, err
	}
	if err := s.all.acquire(ctx); err != nil {
		<-own.semaphore
		s.leave(owner, own)
		return nil, err
	}
	return func() {
		<-s.all
		<-own.semaphore
		s.leave(owner, own)
	}, nil
}

func (s *Slots[Owner]) enter(owner Owner) *ownSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.own[owner]
	if own == nil {
		own = &ownSlot{semaphore: make(semaphore, 1)}
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
