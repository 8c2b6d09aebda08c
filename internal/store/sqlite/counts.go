package sqlite

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
)

const countPlants = "SELECT count(*) FROM plants WHERE store = ?"

// counts has the numbers of plants of the stores that were counted. A count reads all keys of a store, so it is made
// once, and afterwards the writer adds what it commits. A commit of another process makes all numbers unknown again.
// Guarded by writer.lock.
type counts struct {
	version int64 // data_version of the writer's connection, which a commit of another process changes
	known   map[string]int64
	running map[*runningCount]bool
	added   map[string]int64 // by the transaction in flight
}

type runningCount struct {
	store string
	added int64       // since the count started
	ended atomic.Bool // endCount could not remove it
}

// countTimeout is how long a count waits for a write in flight. It then counts, and the number is not kept.
const countTimeout = time.Second

// maxKnown bounds the numbers that are kept: an identity provider can name any number of stores.
const maxKnown = 10_000

// Count implements store.Plants.
func (s *Store) Count(ctx context.Context, storeName string) (int64, error) {
	running := &runningCount{store: storeName}
	n, counted, err := s.count(ctx, running)
	if counted {
		s.writer.endCount(running, n, err == nil)
	}
	if sqlite.ErrCode(err) == sqlite.ResultInterrupt {
		err = ctx.Err()
	}
	return n, s.damage.Record(translate(err))
}

// count returns the number of plants, and false if it was known.
func (s *Store) count(ctx context.Context, running *runningCount) (n int64, counted bool, err error) {
	conn, err := s.readers.get(ctx)
	if err != nil {
		return 0, false, err
	}
	defer s.readers.put(conn)
	n, known, err := s.writer.startCount(conn, running)
	if known || err != nil {
		return n, false, err
	}
	conn.SetInterrupt(ctx.Done())
	for row, stepErr := range query(conn, countPlants, running.store) {
		if err = stepErr; err == nil {
			n = row.ColumnInt64(0)
		}
	}
	conn.SetInterrupt(nil)
	if !conn.AutocommitEnabled() {
		exec(conn, "ROLLBACK")
	}
	return n, true, err
}

// startCount returns the number of plants if it is known. Otherwise it starts a transaction on conn, which sees what
// is committed now, and registers the count. While nothing can be written, it does neither.
func (w *writer) startCount(conn *sqlite.Conn, running *runningCount) (n int64, known bool, err error) {
	if w.lastFailure() != nil || acquire(w.lock, countTimeout) != nil {
		return 0, false, nil
	}
	defer func() { <-w.lock }()
	c := &w.counts
	if err := w.checkCounts(); err != nil {
		return 0, false, err
	}
	if n, known := c.known[running.store]; known {
		return n, true, nil
	}
	if err := exec(conn, "BEGIN"); err != nil {
		return 0, false, err
	}
	if err := exec(conn, "PRAGMA user_version"); err != nil { // BEGIN alone reads nothing
		exec(conn, "ROLLBACK")
		return 0, false, err
	}
	maps.DeleteFunc(c.running, func(r *runningCount, _ bool) bool { return r.ended.Load() })
	c.running[running] = true
	return 0, false, nil
}

// endCount keeps the number, unless commits of other processes may have changed it. If a write takes too long, the
// number is not kept, and a later count removes this one.
func (w *writer) endCount(running *runningCount, n int64, ok bool) {
	if acquire(w.lock, countTimeout) != nil {
		running.ended.Store(true)
		return
	}
	defer func() { <-w.lock }()
	c := &w.counts
	if ok && w.checkCounts() == nil && c.running[running] && len(c.known) < maxKnown {
		c.known[running.store] = n + running.added
	}
	delete(c.running, running)
}

// checkCounts forgets all numbers if another process has committed since the last call, or if it can't be known.
func (w *writer) checkCounts() error {
	if w.conn == nil || w.stopped {
		w.counts.clear()
		return nil
	}
	version, err := number(w.conn, "PRAGMA data_version")
	if err != nil || version != w.counts.version {
		w.counts.clear()
		w.counts.version = version
	}
	return err
}

// add counts plants that the transaction in flight has added to a store, or removed.
func (c *counts) add(store string, n int64) {
	if len(c.known)+len(c.running) > 0 {
		c.added[store] += n
	}
}

// commit applies what the transaction has added.
func (c *counts) commit() {
	for store, n := range c.added {
		if _, known := c.known[store]; known {
			c.known[store] += n
		}
		for r := range c.running {
			if r.store == store {
				r.added += n
			}
		}
	}
}

func (c *counts) clear() {
	c.known, c.running, c.added = map[string]int64{}, map[*runningCount]bool{}, map[string]int64{}
}
