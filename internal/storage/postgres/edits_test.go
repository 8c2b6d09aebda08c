package postgres

import (
	"context"
	"errors"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
	"plantstore/test/testkit/proxy"
)

// rename returns an edit of a plant that record has created.
func rename(id int, name string, seen bool) plant.Edit {
	r := record(id)
	e := plant.Edit{Key: r.Key(), To: &plant.Content{Name: name}}
	if seen {
		e.Seen = &r.Content
	}
	return e
}

// remove returns an edit that removes a plant.
func remove(id int) plant.Edit { return plant.Edit{Key: plant.Key{Store: "main", ID: int64(id)}} }

// If one statement of a batch of edits fails, none is made, and the connection can be used again.
func TestEditsAreAtomic(t *testing.T) {
	t.Parallel()
	testEditsAreAtomic(t, pgtest.Database(t))
	testEditsAreAtomic(t, startPooler(t).URL(pgtest.Name(pgtest.Database(t))))
}

func testEditsAreAtomic(t *testing.T, address string) {
	s := openStorage(t, address)
	storagetest.Create(t, s, record(1), record(2), record(3))
	const addCheck = "ALTER TABLE plants ADD CONSTRAINT valid CHECK (name <> 'invalid')"
	if _, err := s.pool.Exec(t.Context(), addCheck); err != nil {
		t.Fatal(err)
	}
	conns := s.pool.Stat().NewConnsCount()
	for _, seen := range []bool{false, true} {
		batch := []plant.Edit{rename(1, "new", seen), rename(2, "invalid", seen), rename(3, "new", seen)}
		if outcomes, err := s.EditBatch(t.Context(), batch); err == nil || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("EditBatch() with an invalid edit = %v, %v, want an error that is not %v",
				outcomes, err, storage.ErrUnknown)
		}
		for id := 1; id <= 3; id++ {
			storagetest.WantStored(t, s, record(id))
		}
	}
	outcomes, err := s.EditBatch(t.Context(), []plant.Edit{rename(1, "new", true), rename(3, "new", false)})
	wantOutcomes(t, outcomes, err, plant.Replaced, plant.Replaced)
	if n := s.pool.Stat().NewConnsCount() - conns; n > 1 {
		t.Errorf("%d new connections after failed edits, want 1 at most", n)
	}
}

// Edits whose reply is lost, or cut off at any point, have an unknown outcome and are not repeated: a second attempt
// would find the plants changed.
func TestConnectionLostDuringEdits(t *testing.T) {
	t.Parallel()
	for _, keep := range []int{0, 40, -readyForQueryLen} {
		for n := range 2 { // one edit is not sent in the same way as several
			s, p := openBehindProxy(t)
			storagetest.Create(t, s, record(1), record(2))
			edits := []plant.Edit{rename(1, "a", false), rename(2, "b", true)}[:n+1]
			if _, err := s.EditBatch(t.Context(), edits); err != nil { // prepares the statements
				t.Fatal(err)
			}
			edits[0].To = &plant.Content{Name: "d"}
			p.Set(proxy.Once(proxy.Replies, func(c *proxy.Chunk) ([]byte, bool) {
				if keep < 0 {
					return c.Data[:len(c.Data)+keep], false
				}
				return c.Data[:min(keep, len(c.Data)-1)], false
			}))
			outcomes, err := s.EditBatch(t.Context(), edits)
			if !errors.Is(err, storage.ErrUnknown) {
				t.Errorf("EditBatch() with %d bytes of the reply = %v, %v, want %v", keep, outcomes, err, storage.ErrUnknown)
			}
			if now, err := s.Get(t.Context(), "main", 1); err != nil || now.Name != "d" {
				t.Errorf("EditBatch() has changed nothing: nothing was tested: %v, %v", now, err)
			}
		}
	}
}

// An edit that waits for another transaction, which removes or changes its plant, gets the outcome of what that leaves.
func TestEditWaitsForAnother(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]plant.Outcome{
		"DELETE FROM plants WHERE id = 1":                    plant.Absent,
		"UPDATE plants SET name = 'different' WHERE id = 1":  plant.Changed,
		"UPDATE plants SET name = upper(name) WHERE id = 99": plant.Replaced,
	} {
		s := openStorage(t, pgtest.Database(t))
		storagetest.Create(t, s, record(1), record(2))
		other := beginTx(t, s.database(), "SELECT FROM plants WHERE id = 1 FOR UPDATE; "+sql)
		edited := make(chan struct{})
		go func() {
			defer close(edited)
			outcomes, err := s.EditBatch(context.Background(), []plant.Edit{rename(1, "new", true), rename(2, "new", true)})
			wantOutcomes(t, outcomes, err, want, plant.Replaced)
		}()
		waitForLock(t, s.database())
		if err := other.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		<-edited
	}
}
