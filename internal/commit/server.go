package commit

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/plant"
)

// server has the queue and the lanes for the plants of one database server.
type server[T any] struct {
	*Committer[T] // its mu guards the fields

	queue    []*batch[T]       // not started, the oldest first
	open     map[int]*batch[T] // by shard: the batch of the queue that can be joined
	state    state
	expected *time.Timer // ends the wait for state.expected
	wake     *sync.Cond  // free lanes wait for it

	lastBatch atomic.Int64 // plants in the batch that started last
}

// openBatch returns the batch that the next plant of a shard joins.
func (s *server[T]) openBatch(shard int) *batch[T] {
	if b := s.open[shard]; b != nil && len(b.writes) < s.opts.Batch && !b.finished {
		return b
	}
	b := &batch[T]{shard: shard, done: make(chan struct{})}
	b.timeout = time.AfterFunc(s.opts.Timeout, func() { s.expire(b) })
	b.wait = time.AfterFunc(overdueAfter, func() { s.setOverdue(b) })
	s.queue = append(s.queue, b)
	s.open[shard] = b
	s.state.shards = len(s.open)
	return b
}

// starts reports whether a free lane should start a batch of the queue now.
func (s *server[T]) starts(b *batch[T]) bool {
	return s.policy.starts(s.state, len(b.writes), b.overdue)
}

func (s *server[T]) stopExpecting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.expected = 0
	if s.state.waiting > 0 {
		s.wake.Signal()
	}
}

func (s *server[T]) setOverdue(b *batch[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.started || b.finished {
		return
	}
	b.overdue = true
	s.wake.Signal()
}

func (s *server[T]) runLanes() {
	for range s.opts.Lanes {
		s.lanes.Go(s.runLane)
	}
}

func (s *server[T]) runLane() {
	for {
		b := s.next()
		if b == nil {
			return
		}
		outcomes, err := s.commit(b.writes)
		took := time.Since(b.start)
		s.finish(b, outcomes, err)
		if s.opts.Observe != nil {
			s.opts.Observe(BatchResult{len(b.writes), outcomes, err, took})
		}
	}
}

// next waits for a batch and starts it. It returns nil when the Committer is closed and the queue is empty.
func (s *server[T]) next() *batch[T] {
	s.letOthersJoin()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if b := s.take(); b != nil {
			return b
		}
		if s.state.closed {
			return nil
		}
		if s.state.expected > 0 {
			s.expected.Reset(expectedFor)
		}
		s.wake.Wait()
		s.mu.Unlock()
		s.letOthersJoin()
		s.mu.Lock()
	}
}

func (s *server[T]) letOthersJoin() {
	if s.policy.yields(int(s.lastBatch.Load())) {
		runtime.Gosched()
	}
}

// take starts the oldest batch that should start now, and wakes another lane if a second one should. It drops
// batches that have expired.
func (s *server[T]) take() *batch[T] {
	s.queue = slices.DeleteFunc(s.queue, func(b *batch[T]) bool {
		if b.finished {
			s.leave(b)
		}
		return b.finished
	})
	i := slices.IndexFunc(s.queue, s.starts)
	if i < 0 {
		return nil
	}
	b := s.queue[i]
	s.queue = slices.Delete(s.queue, i, i+1)
	s.leave(b)
	n := len(b.writes)
	b.started, b.start = true, time.Now()
	s.state.active++
	s.state.inFlight += n
	s.lastBatch.Store(int64(n))
	s.expected.Stop()
	s.state.expected = s.policy.expect(n)
	if slices.ContainsFunc(s.queue, s.starts) {
		s.wake.Signal()
	}
	return b
}

// leave ends the wait of a batch that leaves the queue.
func (s *server[T]) leave(b *batch[T]) {
	s.waiting -= len(b.writes)
	s.state.waiting -= len(b.writes)
	if s.open[b.shard] == b {
		s.open[b.shard] = nil // the entry stays: it counts the shard
	}
	b.wait.Stop()
}

// finish hands the outcomes of a batch to its callers, unless the batch has expired.
func (s *server[T]) finish(b *batch[T], outcomes []plant.Outcome, err error) {
	b.timeout.Stop()
	s.mu.Lock()
	s.state.active--
	s.state.inFlight -= len(b.writes)
	first := b.finish(outcomes, err)
	s.mu.Unlock()
	if first {
		close(b.done) // without mu, which the callers need to join again
	}
}
