package share

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Two operations run at a time, and one of each owner. An owner with many operations does not delay others.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots[byte](2)
		var mu sync.Mutex
		var all sync.WaitGroup
		var started []string
		start := time.Now()
		for _, name := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
			all.Go(func() {
				release, err := s.Acquire(t.Context(), name[0])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				started = append(started, name+" "+time.Since(start).String())
				mu.Unlock()
				time.Sleep(time.Second)
				release()
			})
			synctest.Wait()
		}
		all.Wait()
		slices.Sort(started)
		want := []string{"a1 0s", "a2 1s", "a3 2s", "b1 0s", "b2 2s", "c1 1s"}
		swapped := []string{"a1 0s", "a2 2s", "a3 3s", "b1 0s", "b2 1s", "c1 1s"} // a2 and b2 come back in either order
		if !slices.Equal(started, want) && !slices.Equal(started, swapped) {
			t.Errorf("started %q, want %q", started, want)
		}
		if !s.all.TryAcquire(2) || len(s.own) != 0 {
			t.Errorf("slots are taken, or %d owners kept, after all operations", len(s.own))
		}
	})
}

// An operation whose context ends while it waits, for its owner or for others, holds nothing.
func TestSlotsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots[byte](1)
		release, err := s.Acquire(t.Context(), 'a')
		if err != nil {
			t.Fatal(err)
		}
		for _, owner := range []byte{'a', 'b'} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Acquire(ctx, owner); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire(%c) = %v", owner, err)
			}
		}
		release()
		for _, owner := range []byte{'b', 'a'} {
			release, err := s.Acquire(t.Context(), owner)
			if err != nil {
				t.Fatal(err)
			}
			release()
		}
		if len(s.own) != 0 {
			t.Errorf("%d owners are kept", len(s.own))
		}
	})
}

// Slots are neither lost nor duplicated when contexts end meanwhile.
func TestConcurrentSlots(t *testing.T) {
	s := NewSlots[int](3)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*10*time.Microsecond)
				if release, err := s.Acquire(ctx, n%4); err == nil {
					release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if !s.all.TryAcquire(3) || s.all.TryAcquire(1) || len(s.own) != 0 {
		t.Errorf("there are not 3 slots, or %d owners are kept, after all operations", len(s.own))
	}
}
