package share_test

import (
	"sync"
	"testing"

	"plantstore/internal/share"
)

// No owner, and not all of them together, have more waiting requests than they may. Who has left may enter again.
func TestWaiters(t *testing.T) {
	w := &share.Waiters[byte]{PerOwner: 2, Total: 3}
	var leave []func()
	for i, step := range []struct {
		owner byte
		ok    bool
	}{{'a', true}, {'a', true}, {'a', false}, {'b', true}, {'b', false}, {'c', false}} {
		out, ok := w.Enter(step.owner)
		if ok != step.ok {
			t.Errorf("step %d: Enter(%c) = %v", i, step.owner, ok)
		}
		if ok {
			leave = append(leave, out)
		}
	}
	leave[0]()
	if _, ok := w.Enter('b'); !ok {
		t.Error("Enter(b) fails after a has left")
	}
}

func TestConcurrentWaiters(t *testing.T) {
	w := &share.Waiters[int]{PerOwner: 2, Total: 5}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 1000 {
				if leave, ok := w.Enter(n % 4); ok {
					leave()
				}
			}
		})
	}
	wg.Wait()
	for n := range 4 {
		if _, ok := w.Enter(n); !ok {
			t.Errorf("Enter(%d) fails after all have left", n)
		}
	}
}
