package storagetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

// testList reads pages of all sizes, and from cursors with and without a plant, up to the lowest and the highest id.
func testList(t *testing.T, open Open) {
	s := opened(t, open)
	const lowest, highest = math.MinInt64, math.MaxInt64
	want := []int64{lowest, lowest + 1, -1 << 53, -7, 0, 3, 4, 90, 1<<53 + 1, highest - 1, highest}
	for _, i := range rand.Perm(len(want)) {
		Create(t, s, Record("main", want[i], fmt.Sprint(want[i]), "-"), Record("other", want[i]/2+1, "n", "-"))
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []int64
		var after *int64
		for {
			page, err := s.List(t.Context(), "main", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > limit {
				t.Fatalf("List(limit=%d) = %d plants", limit, len(page))
			}
			if len(page) == 0 {
				break
			}
			for _, p := range page {
				if got = append(got, p.ID); p.Name != fmt.Sprint(p.ID) {
					t.Errorf("plant %d has the name %q", p.ID, p.Name)
				}
			}
			after = &got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", limit, got, want)
		}
	}
	for after, want := range map[int64][]int64{
		lowest: want[1:], lowest + 1: want[2:], lowest + 2: want[2:], -1: want[4:], 0: want[5:], 5: want[7:],
		highest - 2: want[9:], highest - 1: want[10:], highest: nil,
	} {
		page, err := s.List(t.Context(), "main", &after, 20)
		var got []int64
		for _, p := range page {
			got = append(got, p.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("List(after=%d) = %v, %v, want %v", after, got, err, want)
		}
	}
}

// testListLarge lists plants of all sizes, below and above what an engine may treat as large. Every page ends with
// the plant that fills it, and no earlier.
func testListLarge(t *testing.T, open Open) {
	s := opened(t, open)
	const kib = 1 << 10
	sizes := []struct{ name, tag int }{ // a tag of -1 means none
		{10, -1}, {300 * kib, -1}, {300 * kib, 0}, {1, 300 * kib}, {200 * kib, 200 * kib}, {1 << 20, 5},
		{256 * kib, -1}, {256*kib - 1, -1}, {1, -1}, {1, 0},
		{65536, -1}, {65536, 0}, {65537, -1}, {1, 65536}, {1, 65535}, {32769, 32768},
		{60_000, 3}, {60_000, -1}, {100_000, 7}, {100_000, -1},
		{3, 100_000}, {10, 10}, {10, -1}, {2 << 20, -1}, {2, 2},
	}
	var all []plant.Record
	for i, size := range sizes {
		r := Record("main", int64(i)*3-20, strings.Repeat(string(rune('a'+i)), size.name), "-")
		if size.tag >= 0 {
			tag := strings.Repeat("t", size.tag)
			r.Tag = &tag
		}
		all = append(all, r)
		Create(t, s, r, Record("other", r.ID+1, "n", "-"))
	}
	for _, limit := range []int{1, 2, 3, 5, len(all), 1000} {
		rest := all
		var after *int64
		for {
			page, err := s.List(t.Context(), "main", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			want, size := 0, 0
			for want < min(limit, len(rest)) && size < 256*kib {
				size += rest[want].Size()
				want++
			}
			if len(page) != want {
				t.Fatalf("List(limit=%d) before plant %d has %d plants, want %d of %d bytes",
					limit, rest[0].ID, len(page), want, size)
			}
			if len(page) == 0 {
				break
			}
			for i, p := range page {
				if p.ID != rest[i].ID || !p.Equal(rest[i].Content) {
					t.Fatalf("List(limit=%d) = %.100s at %d, want %.100s", limit, show(p), i, show(rest[i].Plant))
				}
			}
			rest = rest[want:]
			after = &page[want-1].ID
		}
	}
}

// testListDuringEdits: a page with fewer than limit plants and PageBytes is the last one, also if a large plant of it
// is removed or replaced meanwhile.
func testListDuringEdits(t *testing.T, open Open) {
	s := opened(t, open)
	const small, n = "s", 6
	large := strings.Repeat("l", 100_000)
	for id := range int64(n) {
		Create(t, s, Record("main", id, large, "-"))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for id := int64(0); ctx.Err() == nil; id = (id + 1) % 4 {
			if err := Remove(context.Background(), s, "main", id, nil); err != nil {
				t.Errorf("Remove() = %v", err)
			}
			Create(t, s, Record("main", id, large, "-"))
			for _, name := range []string{small, large} {
				if err := Replace(context.Background(), s, "main", id, plant.Content{Name: name}, nil); err != nil {
					t.Errorf("Replace() = %v", err)
				}
			}
		}
	})
	for i := range 200 {
		limit := []int{3, 10}[i%2]
		page, err := s.List(t.Context(), "main", nil, limit)
		size := 0
		for _, p := range page {
			if size += p.Size(); p.Name != large && p.Name != small {
				t.Errorf("List(limit=%d) has a plant without its name", limit)
			}
		}
		if err != nil || len(page) < min(limit, n-1) && size < storage.PageBytes {
			t.Errorf("List(limit=%d) has %d plants and %d bytes, %v, and is not the last page", limit, len(page), size, err)
			break
		}
	}
	stop()
	wg.Wait()
}

func testListDuringCreates(t *testing.T, open Open) {
	s := opened(t, open)
	var before []plant.Record
	for id := range int64(300) {
		before = append(before, Record("main", id*1000, "old", "-"))
	}
	Create(t, s, before...)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				added := []plant.Record{Record("main", rand.Int64N(300_000), "new", "-")}
				if _, err := s.CreateBatch(context.Background(), added); err != nil {
					t.Errorf("CreateBatch() = %v", err)
					return
				}
			}
		}
	})
	seen := map[int64]int{}
	last := int64(-1)
	for {
		page, err := s.List(t.Context(), "main", &last, 7)
		if err != nil {
			t.Error(err)
		}
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			if p.ID <= last {
				t.Errorf("plant %d after plant %d", p.ID, last)
			}
			last = p.ID
			if p.Name == "old" {
				seen[p.ID]++
			}
		}
	}
	close(stop)
	wg.Wait()
	for _, r := range before {
		if seen[r.ID] != 1 {
			t.Errorf("plant %d was listed %d times, want once", r.ID, seen[r.ID])
		}
	}
}
