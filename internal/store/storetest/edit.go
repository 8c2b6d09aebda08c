package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/store"
)

func testReplace(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := t.Context()
	others := []plant.Record{
		Record("main", 0, "Fern", "shade"), Record("main", 3, "Fern", "shade"), Record("other", 1, "Fern", "shade"),
	}
	create(t, s, append(others, Record("main", 1, "Fern", "shade"))...)
	to := Record("main", 1, "Ivy", "-").Plant
	for range 2 { // idempotent
		if err := s.Replace(ctx, "main", 1, to, nil); err != nil {
			t.Fatal(err)
		}
		wantStored(t, s, Record("main", 1, "Ivy", "-"))
	}
	old := Record("main", 1, "Fern", "shade").Plant
	wantError(t, "Replace with a stale plant", s.Replace(ctx, "main", 1, old, &old), plant.ErrChanged)
	emptyTag := Record("main", 1, "Ivy", "").Plant
	wantError(t, "Replace where only the absence of a tag differs",
		s.Replace(ctx, "main", 1, old, &emptyTag), plant.ErrChanged)
	wantStored(t, s, Record("main", 1, "Ivy", "-"))
	if err := s.Replace(ctx, "main", 1, old, &to); err != nil {
		t.Error(err)
	}
	wantStored(t, s, Record("main", 1, "Fern", "shade"))
	wantError(t, "Replace of an absent plant", s.Replace(ctx, "main", 2, to, nil), plant.ErrNotFound)
	for _, r := range others {
		wantStored(t, s, r)
	}
	wantError(t, "Replace of an absent plant that was seen", s.Replace(ctx, "main", 2, to, &to), plant.ErrNotFound)
	// A create is compared with the new plant.
	wantOutcomes(t, create(t, s, Record("main", 1, "Ivy", "-"), Record("main", 1, "Fern", "shade")),
		plant.Taken, plant.Same)
}

func testRemove(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := t.Context()
	create(t, s, Record("main", 1, "Fern", "shade"), Record("main", 2, "Ivy", "-"))
	stale := Record("main", 1, "Fern", "-").Plant
	wantError(t, "Remove with a stale plant", s.Remove(ctx, "main", 1, &stale), plant.ErrChanged)
	wantStored(t, s, Record("main", 1, "Fern", "shade"))
	seen := Record("main", 1, "Fern", "shade").Plant
	if err := s.Remove(ctx, "main", 1, &seen); err != nil {
		t.Error(err)
	}
	_, err := s.Get(ctx, "main", 1)
	wantError(t, "Get of a removed plant", err, plant.ErrNotFound)
	wantError(t, "Remove of a removed plant", s.Remove(ctx, "main", 1, nil), plant.ErrNotFound)
	wantStored(t, s, Record("main", 2, "Ivy", "-"))
	wantOutcomes(t, create(t, s, Record("main", 1, "Oak", "-")), plant.Created)
	if err := s.Remove(ctx, "main", 2, nil); err != nil {
		t.Error(err)
	}
}

// testConcurrentEdits replaces a plant that all edits expect: one succeeds, the others get plant.ErrChanged.
func testConcurrentEdits(t *testing.T, open Open) {
	openers := []store.Store{opened(t, open), opened(t, open)}
	seen := Record("main", 1, "seen", "-")
	create(t, openers[0], seen)
	const n = 8
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = openers[i%2].Replace(context.Background(), "main", 1, plant.Plant{Name: fmt.Sprint(i)}, &seen.Plant)
		})
	}
	wg.Wait()
	p, err := openers[0].Get(t.Context(), "main", 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range errs {
		if p.Name == fmt.Sprint(i) {
			wantError(t, "the winner's Replace", err, nil)
		} else {
			wantError(t, "a loser's Replace", err, plant.ErrChanged)
		}
	}
}
