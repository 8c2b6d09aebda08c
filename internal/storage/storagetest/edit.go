package storagetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// testRemove removes a plant, whose id can then be created again.
func testRemove(t *testing.T, open Open) {
	s := opened(t, open)
	Create(t, s, Record("main", 1, "Fern", "shade"), Record("main", 2, "Ivy", "-"))
	for _, want := range []error{nil, plant.ErrNotFound} {
		wantError(t, "Remove", Remove(t.Context(), s, "main", 1, nil), want)
		_, err := s.Get(t.Context(), "main", 1)
		wantError(t, "Get of a removed plant", err, plant.ErrNotFound)
	}
	WantStored(t, s, Record("main", 2, "Ivy", "-"))
	wantOutcomes(t, Create(t, s, Record("main", 1, "Oak", "-")), plant.Created)
}

// testEditBatch makes edits of several plants in one batch, in an order that is not that of their keys.
func testEditBatch(t *testing.T, open Open) {
	s := opened(t, open)
	Create(t, s, Record("main", 1, "Fern", "shade"), Record("main", 2, "Ivy", "-"), Record("main", 3, "Oak", "-"),
		Record("other", 1, "Elm", "-"), Record("other", 2, "Ash", ""))
	to := plant.Content{Name: "new", Tag: new("")}
	ivy, elm, ash := Record("", 0, "Ivy", "-").Content, Record("", 0, "Elm", "").Content, Record("", 0, "Ash", "").Content
	wantOutcomes(t, edits(t, s,
		change("other", 2, &ivy, &ash), change("main", 9, &to, nil), change("main", 2, nil, &ivy),
		change("other", 1, nil, &elm), // the stored one has no tag
		change("main", 9, nil, nil), change("main", 1, &to, &ivy),
		change("main", 3, &to, nil), change("none", 1, &to, &to),
	),
		plant.Replaced, plant.Absent, plant.Removed,
		plant.Changed,
		plant.Absent, plant.Changed,
		plant.Replaced, plant.Absent)
	for _, want := range []plant.Record{
		Record("main", 1, "Fern", "shade"), Record("main", 3, "new", ""), Record("other", 1, "Elm", "-"),
		Record("other", 2, "Ivy", "-"),
	} {
		WantStored(t, s, want)
	}
	_, err := s.Get(t.Context(), "main", 2)
	wantError(t, "Get of a removed plant", err, plant.ErrNotFound)
	// Edits that can't be made, and one that changes nothing.
	wantOutcomes(t, edits(t, s, change("main", 9, &to, nil), change("main", 1, nil, &ivy)), plant.Absent, plant.Changed)
	wantOutcomes(t, edits(t, s, change("main", 3, &to, nil)), plant.Replaced)
	// A create is compared with the new plant.
	wantOutcomes(t, Create(t, s, Record("main", 3, "Oak", "-"), Record("main", 3, "new", "")), plant.Taken, plant.Same)
	if outcomes, err := s.EditBatch(t.Context(), nil); err != nil || len(outcomes) != 0 {
		t.Errorf("EditBatch(nil) = %v, %v", outcomes, err)
	}
}

// testEditTwice makes several edits of a plant in one batch: each finds the result of the ones before it.
func testEditTwice(t *testing.T, open Open) {
	s := opened(t, open)
	a, b, c := plant.Content{Name: "a"}, plant.Content{Name: "b"}, plant.Content{Name: "c"}
	Create(t, s, Record("main", 1, "a", "-"), Record("main", 2, "a", "-"), Record("main", 3, "a", "-"),
		Record("main", 4, "a", "-"))
	wantOutcomes(t, edits(t, s,
		change("main", 4, &b, nil),
		change("main", 1, &b, &a), change("main", 1, &c, &a), change("main", 1, &c, &b),
		change("main", 2, &b, nil), change("main", 2, &c, nil), // the last one is stored
		change("main", 3, nil, &a), change("main", 3, &b, &a), change("main", 3, nil, nil),
		change("main", 4, nil, &b),
	), plant.Replaced,
		plant.Replaced, plant.Changed, plant.Replaced,
		plant.Replaced, plant.Replaced,
		plant.Removed, plant.Absent, plant.Absent,
		plant.Removed)
	WantStored(t, s, Record("main", 1, "c", "-"))
	WantStored(t, s, Record("main", 2, "c", "-"))
	if n, err := s.Count(t.Context(), "main"); err != nil || n != 2 {
		t.Errorf("Count() = %d, %v, want 2", n, err)
	}
}

// testEditSizes makes batches of several sizes, each with edits that can't be made.
func testEditSizes(t *testing.T, open Open) {
	s := opened(t, open)
	for _, n := range []int{1, 2, 63, 64, 65, 512} {
		var all []plant.Record
		var batch []plant.Edit
		var want []plant.Outcome
		for i := range n {
			all = append(all, Record("main", int64(i), "old", "-"))
			to, outcome := &plant.Content{Name: fmt.Sprint(i)}, plant.Replaced
			if i%2 == 1 {
				to, outcome = nil, plant.Removed
			}
			batch = append(batch, change("main", int64(n-1-i), to, nil), change("main", int64(n+i), to, nil))
			want = append(want, outcome, plant.Absent)
		}
		Create(t, s, all...)
		wantOutcomes(t, edits(t, s, batch...), want...)
		page, err := s.List(t.Context(), "main", nil, n)
		if err != nil || len(page) != (n+1)/2 {
			t.Fatalf("List() after %d edits = %d plants, %v", n, len(page), err)
		}
		var removes []plant.Edit
		for _, p := range page {
			WantStored(t, s, Record("main", p.ID, fmt.Sprint(int64(n)-1-p.ID), "-"))
			removes = append(removes, change("main", p.ID, nil, &p.Content))
		}
		wantOutcomes(t, edits(t, s, removes...), slices.Repeat([]plant.Outcome{plant.Removed}, len(removes))...)
	}
}

func change(name string, id int64, to, seen *plant.Content) plant.Edit {
	return plant.Edit{Key: plant.Key{Store: name, ID: id}, To: to, Seen: seen}
}

func edits(t *testing.T, s storage.Storage, batch ...plant.Edit) []plant.Outcome {
	t.Helper()
	outcomes, err := s.EditBatch(t.Context(), batch)
	if err != nil {
		t.Fatalf("EditBatch(%d edits) = %v", len(batch), err)
	}
	return outcomes
}

// testConcurrentEdits replaces a plant that all edits expect: one succeeds, the others get plant.ErrChanged.
func testConcurrentEdits(t *testing.T, open Open) {
	openers := []storage.Storage{opened(t, open), opened(t, open)}
	seen := Record("main", 1, "seen", "-")
	Create(t, openers[0], seen)
	const n = 8
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = Replace(context.Background(), openers[i%2], "main", 1, plant.Content{Name: fmt.Sprint(i)}, &seen.Content)
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

// testClear removes the plants of one store in steps, also when another process removes them meanwhile.
func testClear(t *testing.T, open Open) {
	s, there := opened(t, open), opened(t, open)
	kept := Record("main-2", 1, "Ivy", "-")
	all := []plant.Record{kept, Record("main", math.MinInt64, "a", "-"), Record("main", math.MaxInt64, "b", "")}
	for id := range int64(448) {
		all = append(all, Record("main", id, "Fern", "shade"))
	}
	Create(t, s, all...)
	clear := func(from storage.Plants, want int64) {
		t.Helper()
		var removed atomic.Int64
		if err := storage.Clear(t.Context(), from, "main", 1, &removed); removed.Load() != want || err != nil {
			t.Errorf("Clear() = %v after %d, want %d", err, removed.Load(), want)
		}
	}
	clear(&raced{s, func() { clear(there, 450) }}, 200) // the plants that another process has removed meanwhile count
	clear(s, 0)
	Create(t, s, all[1:]...)
	clear(s, 450)
	if n, err := s.Count(t.Context(), "main"); n != 0 || err != nil {
		t.Errorf("Count() of a cleared store = %d, %v", n, err)
	}
	WantStored(t, s, kept)
}

// raced calls a function once between the List and the EditBatch of Clear.
type raced struct {
	storage.Storage
	between func()
}

func (r *raced) EditBatch(ctx context.Context, edits []plant.Edit) ([]plant.Outcome, error) {
	if r.between != nil {
		r.between()
		r.between = nil
	}
	return r.Storage.EditBatch(ctx, edits)
}
