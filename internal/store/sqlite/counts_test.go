package sqlite

import (
	"fmt"
	"sync"
	"testing"

	"plantstore/internal/plant"
)

func (s *Store) wantCount(t *testing.T, when string, want int64) {
	t.Helper()
	for range 2 { // counted, and then known
		if n, err := s.Count(t.Context(), "main"); err != nil || n != want {
			t.Errorf("%s: Count() = %d, %v, want %d", when, n, err, want)
		}
	}
	if n, known := s.writer.counts.known["main"]; !known || n != want {
		t.Errorf("%s: the number is known: %v, %d, want %d", when, known, n, want)
	}
}

func (s *Store) create(t *testing.T, store string, ids ...int64) {
	t.Helper()
	var batch []plant.Record
	for _, id := range ids {
		batch = append(batch, plant.Record{Store: store, New: plant.New{ID: id}})
	}
	if _, err := s.CreateBatch(t.Context(), batch); err != nil {
		t.Error(err)
	}
}

func (s *Store) remove(t *testing.T, store string, id int64) {
	t.Helper()
	edits := []plant.Edit{{Key: plant.Key{Store: store, ID: id}}}
	if _, err := s.EditBatch(t.Context(), edits); err != nil {
		t.Error(err)
	}
}

// After the first count the number follows the commits, whatever they change.
func TestCountFollowsCommits(t *testing.T) {
	s := newStore(t)
	s.wantCount(t, "an empty store", 0)
	s.create(t, "main", 1, 2, 3)
	s.create(t, "other", 1)
	s.wantCount(t, "after creates", 3)
	s.create(t, "main", 3, 4, 4, 5) // row by row, after a rollback
	s.wantCount(t, "after a create of stored plants", 5)
	s.remove(t, "main", 1)
	s.remove(t, "main", 1)
	s.remove(t, "other", 1)
	s.wantCount(t, "after a remove", 4)
	s.writer.tx(func() error {
		s.writer.counts.add("main", 1)
		return errConflict
	})
	s.wantCount(t, "after a rollback", 4)
	s.writer.stop("a test")
	if n, err := s.Count(t.Context(), "main"); err != nil || n != 4 {
		t.Errorf("Count() of a stopped store = %d, %v, want 4", n, err)
	}
}

// A commit of another process is counted.
func TestCountAfterOtherProcess(t *testing.T) {
	s := newStore(t)
	s.create(t, "main", 1)
	s.wantCount(t, "before", 1)
	other := openWriter(t, s.writer.path)
	defer other.close()
	other.mustAdd(t, 2, "x")
	s.wantCount(t, "after a commit of another process", 2)
	running := &runningCount{store: "main"}
	s.writer.counts.clear()
	s.startCount(t, running)
	other.mustAdd(t, 3, "x")
	s.writer.endCount(running, 2, true)
	s.wantCount(t, "after one during a count", 3)
}

// What is committed during a count is added to what it has counted.
func TestCommitDuringCount(t *testing.T) {
	s := newStore(t)
	s.create(t, "main", 1, 2)
	running := &runningCount{store: "main"}
	s.startCount(t, running)
	s.create(t, "main", 3, 4)
	s.create(t, "other", 5)
	s.remove(t, "main", 1)
	s.writer.endCount(running, 2, true)
	s.wantCount(t, "after a count", 3)
	if n := len(s.writer.counts.running); n != 0 {
		t.Errorf("%d counts are still running", n)
	}
}

// A count that ends while a write hangs is not kept, and does not stay among those that are running.
func TestCountEndsDuringHangingWrite(t *testing.T) {
	s := newStore(t)
	s.create(t, "main", 1, 2)
	running := &runningCount{store: "main"}
	s.startCount(t, running)
	s.writer.lock <- struct{}{}
	s.writer.endCount(running, 2, true)
	<-s.writer.lock
	if _, known := s.writer.counts.known["main"]; known {
		t.Error("its number is kept")
	}
	s.create(t, "main", 3)
	s.wantCount(t, "after the write", 3)
	if n := len(s.writer.counts.running); n != 0 {
		t.Errorf("%d counts are still running", n)
	}
}

// startCount starts a count whose transaction ends at once.
func (s *Store) startCount(t *testing.T, running *runningCount) {
	t.Helper()
	conn, err := s.readers.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.readers.put(conn)
	if _, known, err := s.writer.startCount(conn, running); err != nil || known {
		t.Fatalf("startCount() = %v, %v", known, err)
	}
	exec(conn, "ROLLBACK")
}

func TestCountDuringCommits(t *testing.T) {
	s := newStore(t)
	var writers, counters sync.WaitGroup
	stop := make(chan struct{})
	counters.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			s.writer.lock <- struct{}{}
			s.writer.counts.clear()
			<-s.writer.lock
			if _, err := s.Count(t.Context(), "main"); err != nil {
				t.Error(err)
			}
		}
	})
	for first := range int64(4) {
		writers.Go(func() {
			for i := range int64(50) {
				s.create(t, "main", first*1000+2*i, first*1000+2*i+1)
				s.remove(t, "main", first*1000+2*i)
			}
		})
	}
	writers.Wait()
	close(stop)
	counters.Wait()
	s.wantCount(t, "after all", 200)
}

// The numbers of so many stores are kept, and others are counted each time.
func TestCountsAreBounded(t *testing.T) {
	s := newStore(t)
	s.create(t, "main", 1, 2)
	s.wantCount(t, "at first", 2)
	for i := range maxKnown - 1 {
		s.writer.counts.known[fmt.Sprint(i)] = 0
	}
	s.create(t, "other", 1)
	for range 2 {
		if n, err := s.Count(t.Context(), "other"); err != nil || n != 1 {
			t.Errorf("Count() = %d, %v, want 1", n, err)
		}
	}
	if n := len(s.writer.counts.known); n != maxKnown {
		t.Errorf("%d numbers are kept, want %d", n, maxKnown)
	}
}
