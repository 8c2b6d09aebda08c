package storage_test

import (
	"math"
	"testing"

	"plantstore/internal/storage"
)

func TestFirstAfter(t *testing.T) {
	for _, test := range []struct {
		after, first int64
		ok           bool
	}{
		{math.MinInt64, math.MinInt64 + 1, true},
		{-1, 0, true},
		{0, 1, true},
		{math.MaxInt64 - 1, math.MaxInt64, true},
		{math.MaxInt64, 0, false},
	} {
		if first, ok := storage.FirstAfter(&test.after); first != test.first || ok != test.ok {
			t.Errorf("FirstAfter(%d) = %d, %v, want %d, %v", test.after, first, ok, test.first, test.ok)
		}
	}
	if first, ok := storage.FirstAfter(nil); first != math.MinInt64 || !ok {
		t.Errorf("FirstAfter(nil) = %d, %v, want %d", first, ok, int64(math.MinInt64))
	}
}

// The size of a page is part of the published description of the API.
func TestPageBytes(t *testing.T) {
	if storage.PageBytes != 262_144 {
		t.Errorf("PageBytes = %d, want 256 KiB", storage.PageBytes)
	}
}
