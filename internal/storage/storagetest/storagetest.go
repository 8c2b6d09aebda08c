// Package storagetest tests that an engine keeps the promises of package storage. Every engine runs it.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// Open opens the database of one test. Called again with the same test it opens the same database
// once more, as a second process would.
type Open func(t *testing.T) storage.Storage

// RunOn runs the whole suite. database returns the address of a new database, and that at which another process would
// open it.
func RunOn(t *testing.T, database func(*testing.T) (first, again string),
	open func(*testing.T, string) storage.Storage) {
	var mu sync.Mutex
	others := map[*testing.T]string{}
	openAgain := func(t *testing.T) storage.Storage {
		mu.Lock()
		defer mu.Unlock()
		address, ok := others[t]
		if !ok {
			address, others[t] = database(t)
		}
		return open(t, address)
	}
	tests := []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"outcomes of a create", testOutcomes},
		{"a key twice in a batch", testKeyTwice},
		{"text is stored unchanged", testText},
		{"batches of every size", testBatchSizes},
		{"stores are separate", testStores},
		{"names of stores", testStoreNames},
		{"close and open", testReopen},
		{"concurrent creates", testConcurrentCreates},
		{"list", testList},
		{"list during creates", testListDuringCreates},
		{"list of large plants ends early", testListLarge},
		{"list during edits", testListDuringEdits},
		{"remove", testRemove},
		{"a batch of edits", testEditBatch},
		{"a plant twice in a batch of edits", testEditTwice},
		{"batches of edits of every size", testEditSizes},
		{"concurrent edits", testConcurrentEdits},
		{"clear", testClear},
		{"tokens", testTokens},
		{"tokens in order", testTokenOrder},
		{"changes of tokens", testChangeToken},
		{"rotation of tokens", testRotation},
		{"uses of tokens", testUses},
		{"tokens are pruned", testPruneTokens},
		{"sandboxes", testSandboxes},
		{"webhooks", testWebhooks},
		{"deliveries", testDeliveries},
		{"deliveries are removed", testRemoveDeliveries},
		{"lease", testLease},
		{"the end of the context does not stop a batch", testContext},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.test(t, openAgain) })
	}
}

// Record makes a record for tests; a tag of "-" means none.
func Record(store string, id int64, name, tag string) plant.Record {
	r := plant.Record{Store: store, Plant: plant.Plant{ID: id, Content: plant.Content{Name: name}}}
	if tag != "-" {
		r.Tag = &tag
	}
	return r
}

// Editor makes batches of edits, as storage.Plants does.
type Editor interface {
	EditBatch(ctx context.Context, edits []plant.Edit) ([]plant.Outcome, error)
}

// Replace makes a batch of one edit and returns the error of its outcome.
func Replace(ctx context.Context, s Editor, name string, id int64, to plant.Content, seen *plant.Content) error {
	return edit(ctx, s, plant.Edit{Key: plant.Key{Store: name, ID: id}, To: &to, Seen: seen})
}

// Remove is Replace for an edit that removes a plant.
func Remove(ctx context.Context, s Editor, name string, id int64, seen *plant.Content) error {
	return edit(ctx, s, plant.Edit{Key: plant.Key{Store: name, ID: id}, Seen: seen})
}

func edit(ctx context.Context, s Editor, e plant.Edit) error {
	outcomes, err := s.EditBatch(ctx, []plant.Edit{e})
	if err != nil {
		return err
	}
	return outcomes[0].Err()
}

func opened(t *testing.T, open Open) storage.Storage {
	t.Helper()
	s := open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return s
}

// Create creates plants in one batch, which must not fail.
func Create(t testing.TB, s storage.Plants, records ...plant.Record) []plant.Outcome {
	t.Helper()
	out, err := s.CreateBatch(t.Context(), records)
	if err != nil {
		t.Fatalf("CreateBatch(%d plants) = %v", len(records), err)
	}
	if len(out) != len(records) {
		t.Fatalf("CreateBatch(%d plants) gave %d outcomes", len(records), len(out))
	}
	return out
}

func wantOutcomes(t *testing.T, got []plant.Outcome, want ...plant.Outcome) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("outcomes = %v, want %v", got, want)
	}
}

func WantStored(t *testing.T, s storage.Storage, want plant.Record) {
	t.Helper()
	got, err := s.Get(t.Context(), want.Store, want.ID)
	if err != nil {
		t.Errorf("Get(%s, %d) = %v", want.Store, want.ID, err)
		return
	}
	if got.ID != want.ID || !got.Equal(want.Content) {
		t.Errorf("Get(%s, %d) = %s, want %s", want.Store, want.ID, show(got), show(want.Plant))
	}
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func show(p plant.Plant) string {
	if p.Tag == nil {
		return fmt.Sprintf("{%d %q no tag}", p.ID, p.Name)
	}
	return fmt.Sprintf("{%d %q %q}", p.ID, p.Name, *p.Tag)
}

func testStores(t *testing.T, open Open) {
	s := opened(t, open)
	wantOutcomes(t, Create(t, s, Record("a", 1, "A", "-"), Record("b", 1, "B", "-")), plant.Created, plant.Created)
	WantStored(t, s, Record("a", 1, "A", "-"))
	WantStored(t, s, Record("b", 1, "B", "-"))
	_, err := s.Get(t.Context(), "c", 1)
	wantError(t, "Get of another store", err, plant.ErrNotFound)
	if err := Remove(t.Context(), s, "a", 1, nil); err != nil {
		t.Error(err)
	}
	WantStored(t, s, Record("b", 1, "B", "-"))
	wantError(t, "Replace in another store", Replace(t.Context(), s, "a", 1, plant.Content{}, nil), plant.ErrNotFound)
	for store, want := range map[string]int64{"a": 0, "b": 1, "c": 0} {
		page, err := s.List(t.Context(), store, nil, 10)
		if err != nil || int64(len(page)) != want {
			t.Errorf("List(%s) = %d plants, %v, want %d", store, len(page), err, want)
		}
		if n, err := s.Count(t.Context(), store); err != nil || n != want {
			t.Errorf("Count(%s) = %d, %v, want %d", store, n, err, want)
		}
	}
}

func testStoreNames(t *testing.T, open Open) {
	s := opened(t, open)
	check := func(want ...string) {
		t.Helper()
		if got, err := s.Stores(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("Stores() = %q, %v, want %q", got, err, want)
		}
	}
	check()
	names := []string{"", "A", "B.1", "a", "a b", "a-", "a_", "aa", "main", "\u00e9", "\uffff", "\U0001f331"} // in order
	var all []plant.Record
	for i, name := range slices.Backward(names) {
		for id := range int64(3) {
			all = append(all, Record(name, id-int64(i), "n", "-"))
		}
	}
	Create(t, s, all...)
	check(names...)
	for id := range int64(3) {
		if err := Remove(t.Context(), s, "a", id-3, nil); err != nil {
			t.Fatal(err)
		}
	}
	check(slices.Delete(names, 3, 4)...)
}

func testReopen(t *testing.T, open Open) {
	s := open(t)
	Create(t, s, Record("main", 1, "Fern", "shade"))
	tok, _ := token.New("kept", "main", token.AllScopes, time.Now(), time.Time{})
	if err := s.AddToken(t.Context(), tok); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Check(t.Context()), s.Close()); err != nil {
		t.Fatalf("Check() and Close() = %v", err)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("Check() after Close() = nil, want an error")
	}
	if _, err := s.CreateBatch(t.Context(), []plant.Record{Record("main", 2, "x", "-")}); err == nil {
		t.Error("CreateBatch after Close() = nil, want an error")
	}
	s = opened(t, open)
	WantStored(t, s, Record("main", 1, "Fern", "shade"))
	if _, err := s.TokenByHash(t.Context(), tok.Hash); err != nil {
		t.Errorf("TokenByHash() after reopening = %v", err)
	}
}
