package share_test

import (
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
