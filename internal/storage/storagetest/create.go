package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
)

func testOutcomes(t *testing.T, open Open) {
	s := opened(t, open)
	wantOutcomes(t, Create(t, s, Record("main", 1, "Fern", "shade")), plant.Created)
	wantOutcomes(t, Create(t, s, Record("main", 1, "Fern", "shade")), plant.Same)
	wantOutcomes(t, Create(t, s, Record("main", 1, "fern", "shade")), plant.Taken)
	wantOutcomes(t, Create(t, s, Record("main", 1, "Fern", "sun")), plant.Taken)
	wantOutcomes(t, Create(t, s, Record("main", 1, "Fern", "-")), plant.Taken)
	WantStored(t, s, Record("main", 1, "Fern", "shade"))

	wantOutcomes(t, Create(t, s, Record("main", 2, "Fern", "-")), plant.Created)
	wantOutcomes(t, Create(t, s, Record("main", 2, "Fern", "-")), plant.Same)
	wantOutcomes(t, Create(t, s, Record("main", 2, "Fern", "")), plant.Taken)
	WantStored(t, s, Record("main", 2, "Fern", "-"))

	wantOutcomes(t, Create(t, s, Record("main", 3, "Fern", "")), plant.Created)
	wantOutcomes(t, Create(t, s, Record("main", 3, "Fern", "-")), plant.Taken)
	WantStored(t, s, Record("main", 3, "Fern", ""))
	wantOutcomes(t, Create(t, s))
}

func testKeyTwice(t *testing.T, open Open) {
	s := opened(t, open)
	Create(t, s, Record("main", 5, "Ivy", "-"))
	wantOutcomes(t, Create(t, s, Record("main", 4, "Moss", "-"), Record("main", 5, "Oak", "-"),
		Record("main", 6, "Elm", "-"), Record("main", 5, "Ivy", "-")),
		plant.Created, plant.Taken, plant.Created, plant.Same)
	WantStored(t, s, Record("main", 5, "Ivy", "-"))
	WantStored(t, s, Record("main", 6, "Elm", "-"))
	wantOutcomes(t, Create(t, s,
		Record("main", 9, "Rose", "-"), Record("main", 8, "Lily", "x"), Record("main", 9, "Rose", "-"),
		Record("main", 9, "Thorn", "-"), Record("other", 9, "Thorn", "-"), Record("main", 8, "Lily", "-")),
		plant.Created, plant.Created, plant.Same, plant.Taken, plant.Created, plant.Taken)
	WantStored(t, s, Record("main", 9, "Rose", "-"))
	WantStored(t, s, Record("main", 8, "Lily", "x"))
	WantStored(t, s, Record("other", 9, "Thorn", "-"))
	// A key that is stored, twice in a batch.
	wantOutcomes(t, Create(t, s,
		Record("main", 9, "Thorn", "-"), Record("main", 9, "Rose", "-"), Record("main", 9, "Thorn", "-")),
		plant.Taken, plant.Same, plant.Taken)
}

func testText(t *testing.T, open Open) {
	s := opened(t, open)
	names := []string{
		"", " ", "  two ends  ", "\t\r\n\v\f", "\x01\x1f\x7f", `quote " ' back\slash`, "emoji 🌵👩‍🌾",
		"e\u0301 is not \u00e9", "\u00e9",
		"\ufeffBOM", "\ufffe\uffff", "\U0010ffff", "\u202eright to left", "'; DROP TABLE plants; --", "%s $1 ? :x",
		"NULL", "\\x00", "\\N", "{a,b}",
		strings.Repeat("long ", 13_000), "ß", "ﬁ", "İ",
	}
	for i, name := range names {
		want := Record("main", int64(i), name, name)
		wantOutcomes(t, Create(t, s, want), plant.Created)
		WantStored(t, s, want)
		wantOutcomes(t, Create(t, s, want), plant.Same)
		wantOutcomes(t, Create(t, s, Record("main", int64(i), name+" ", name)), plant.Taken)
	}
}

func testBatchSizes(t *testing.T, open Open) {
	s := opened(t, open)
	var id int64
	for _, size := range []int{1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 100, 512, 1000} {
		batch := make([]plant.Record, size)
		want := make([]plant.Outcome, size)
		for i := range batch {
			id++
			batch[i], want[i] = Record("main", id, fmt.Sprint(id), fmt.Sprint(-id)), plant.Created
		}
		wantOutcomes(t, Create(t, s, batch...), want...)
		WantStored(t, s, batch[0])
		WantStored(t, s, batch[size-1])
		batch[size/2].Name = "another"
		for i := range want {
			want[i] = plant.Same
		}
		want[size/2] = plant.Taken
		wantOutcomes(t, Create(t, s, batch...), want...)
	}
	if n, err := s.Count(t.Context(), "main"); err != nil || n != id {
		t.Errorf("Count() = %d, %v, want %d", n, err, id)
	}
}

// testConcurrentCreates creates the same ids with different names, in batches of different order, through two
// connections to the database. Each id must have one winner.
func testConcurrentCreates(t *testing.T, open Open) {
	openers := []storage.Storage{opened(t, open), opened(t, open)}
	const clients, n = 8, 200
	won := make([][]plant.Outcome, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			won[c] = make([]plant.Outcome, n)
			order := rand.Perm(n)
			for len(order) > 0 {
				size := min(len(order), 1+rand.IntN(9))
				var batch []plant.Record
				for _, id := range order[:size] {
					batch = append(batch, Record("main", int64(id), fmt.Sprint("client ", c), "-"))
				}
				out, err := openers[c%2].CreateBatch(context.Background(), batch)
				// On a slow machine a batch may be refused, or its outcome unknown: then its plants may be there already.
				mine := plant.Created
				for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); {
					if errors.Is(err, storage.ErrUnknown) {
						mine = plant.Same
					} else if !errors.Is(err, storage.ErrUnavailable) {
						break
					}
					out, err = openers[c%2].CreateBatch(context.Background(), batch)
				}
				if err != nil {
					t.Errorf("CreateBatch() = %v", err)
					return
				}
				for i, id := range order[:size] {
					won[c][id] = out[i]
					if out[i] == mine {
						won[c][id] = plant.Created
					}
				}
				order = order[size:]
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for id := range n {
		p, err := openers[0].Get(t.Context(), "main", int64(id))
		if err != nil {
			t.Fatal(err)
		}
		for c := range clients {
			want := plant.Taken
			if p.Name == fmt.Sprint("client ", c) {
				want = plant.Created
			}
			if won[c][id] != want {
				t.Errorf("plant %d is %q, and the outcome of client %d is %v", id, p.Name, c, won[c][id])
			}
		}
	}
}

func testContext(t *testing.T, open Open) {
	s := opened(t, open)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, err := s.CreateBatch(ctx, []plant.Record{Record("main", 1, "Fern", "-")})
	if err != nil {
		t.Fatalf("CreateBatch() with an ended context = %v", err)
	}
	wantOutcomes(t, out, plant.Created)
	WantStored(t, s, Record("main", 1, "Fern", "-"))
}
