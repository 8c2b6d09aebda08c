package storage_test

import (
	"errors"
	"fmt"
	"testing"

	"plantstore/internal/storage"
)

func TestCheckText(t *testing.T) {
	for text, damaged := range map[string]bool{
		"": false, "Fern": false, "\u0001\uFFFD\U0010FFFF": false,
		"\x00": true, "Fern\x00": true, "Fern\xff": true, "\x80": true, "\xe2\x82": true, "\xed\xa0\x80": true,
	} {
		for _, err := range []error{storage.CheckText(&text), storage.CheckText(nil, new(string), &text)} {
			if errors.Is(err, storage.ErrDamaged) != damaged {
				t.Errorf("CheckText(%q) = %v, want damage: %v", text, err, damaged)
			}
		}
	}
}

// The first damage is kept, whatever follows.
func TestDamage(t *testing.T) {
	var d storage.Damage
	first := fmt.Errorf("a read: %w", storage.ErrDamaged)
	for _, step := range []struct{ err, want error }{
		{nil, nil},
		{storage.ErrUnavailable, nil},
		{errors.New("another error"), nil},
		{first, first},
		{fmt.Errorf("a later read: %w", storage.ErrDamaged), first},
		{nil, first},
	} {
		if got := d.Record(step.err); got != step.err {
			t.Errorf("Record(%v) = %v, want it unchanged", step.err, got)
		}
		if got := d.Err(); got != step.want {
			t.Errorf("Err() after %v = %v, want %v", step.err, got, step.want)
		}
	}
	if !errors.Is(storage.ErrDamaged, storage.ErrUnavailable) {
		t.Error("ErrDamaged is not ErrUnavailable")
	}
}
