package store_test

import (
	"errors"
	"fmt"
	"testing"

	"plantstore/internal/store"
)

// The first damage is kept, whatever follows.
func TestDamage(t *testing.T) {
	var d store.Damage
	first := fmt.Errorf("a read: %w", store.ErrDamaged)
	for _, step := range []struct{ err, want error }{
		{nil, nil},
		{store.ErrUnavailable, nil},
		{errors.New("another error"), nil},
		{first, first},
		{fmt.Errorf("a later read: %w", store.ErrDamaged), first},
		{nil, first},
	} {
		if got := d.Record(step.err); got != step.err {
			t.Errorf("Record(%v) = %v, want it unchanged", step.err, got)
		}
		if got := d.Err(); got != step.want {
			t.Errorf("Err() after %v = %v, want %v", step.err, got, step.want)
		}
	}
	if !errors.Is(store.ErrDamaged, store.ErrUnavailable) {
		t.Error("ErrDamaged is not ErrUnavailable")
	}
}
