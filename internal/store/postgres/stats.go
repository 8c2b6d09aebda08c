package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/store"
)

const (
	sizePeriod   = time.Minute // between two queries for the size of the database
	databaseSize = "SELECT pg_database_size(current_database())"
)

// databaseBytes is the size of the database on the server that the pool is connected to, as it was last read.
type databaseBytes struct {
	bytes atomic.Int64
	asked atomic.Int64 // when it was last queried, in nanoseconds since Store.opened; 0: never
}

// Stats implements store.Store. It queries nothing itself; the size is read in the background, at most once a minute.
func (s *Store) Stats() store.Stats {
	now, asked := int64(time.Since(s.opened)), s.size.asked.Load()
	if (asked == 0 || now-asked > int64(sizePeriod)) && s.size.asked.CompareAndSwap(asked, now) {
		go s.readSize()
	}
	pool := s.pool.Stat()
	steps, _ := schema.ReadDir("schema") // all of them were applied when the database was opened
	return store.Stats{
		Engine: "postgresql", Schema: len(steps), Bytes: s.size.bytes.Load(), WALBytes: -1, Free: -1,
		UsedConns: int(pool.AcquiredConns()), IdleConns: int(pool.IdleConns()), MaxConns: s.conns, Nodes: s.nodes.states(),
	}
}

// readSize keeps the previous size if the server does not respond.
func (s *Store) readSize() {
	s.read(context.Background(), s.timeouts.read, func(ctx context.Context, conn *pgx.Conn) error {
		var bytes int64
		err := conn.QueryRow(ctx, databaseSize).Scan(&bytes)
		if err == nil {
			s.size.bytes.Store(bytes)
		}
		return err
	})
}

// states counts the nodes of the last check by their state.
func (m *nodeMonitor) states() map[string]int64 {
	if m == nil {
		return nil
	}
	return *m.counts.Load()
}

// count records the states of the nodes. If they could not be read, the state of all nodes is unknown.
func (m *nodeMonitor) count(nodes []node, err error) {
	counts := map[string]int64{"ok": 0, "down": 0, "unsafe": 0, "unknown": 0}
	if last := m.counts.Load(); err != nil && last != nil {
		for _, n := range *last {
			counts["unknown"] += n
		}
	}
	for _, n := range nodes {
		state := "ok"
		if n.reason != "" {
			state = "down"
		} else if text, _ := n.settings.problem(n.name(), m.opts); text != "" {
			state = "unsafe"
		}
		counts[state]++
	}
	m.counts.Store(&counts)
}
