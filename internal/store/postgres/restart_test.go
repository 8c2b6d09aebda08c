package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
)

// load is clients that create batches and record what the store reports of them.
type load struct {
	s       *Store
	ids     atomic.Int64
	batches []atomic.Int64 // completed, of each client
	stop    func()

	mu        sync.Mutex
	confirmed []plant.Record
	refused   []plant.Record
	unknown   int // batches
}

const loadBatch = 3 // plants

func startLoad(t *testing.T, s *Store, clients int) *load {
	l := &load{s: s, batches: make([]atomic.Int64, clients)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				l.createBatch(t)
				l.batches[i].Add(1)
			}
		})
	}
	l.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) createBatch(t *testing.T) {
	batch := make([]plant.Record, loadBatch)
	for i := range batch {
		batch[i] = record(int(l.ids.Add(1)))
	}
	outcomes, err := l.s.CreateBatch(context.Background(), batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrUnknown):
		l.unknown++
	case errors.Is(err, store.ErrUnavailable):
		l.refused = append(l.refused, batch...)
		time.Sleep(time.Millisecond)
	case err != nil:
		t.Errorf("CreateBatch() = %v", err)
	default:
		for i, outcome := range outcomes {
			if outcome == plant.Taken {
				t.Errorf("plant %d is taken", batch[i].ID)
			}
		}
		l.confirmed = append(l.confirmed, batch...)
	}
}

// waitForMore returns when n more plants are confirmed.
func (l *load) waitForMore(t *testing.T, n int) {
	t.Helper()
	size := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.confirmed)
	}
	before := size()
	eventually(t, fmt.Sprintf("%d more plants are confirmed", n), func() bool { return size() >= before+n })
}

// compare checks that confirmed plants are stored, and refused ones are not.
func (l *load) compare(t *testing.T) {
	t.Helper()
	for _, r := range l.confirmed {
		wantStored(t, l.s, r)
	}
	for _, r := range l.refused {
		if p, err := l.s.Get(t.Context(), r.Store, r.ID); !errors.Is(err, plant.ErrNotFound) {
			t.Errorf("Get(%d) of a refused plant = %v, %v", r.ID, p, err)
		}
	}
	t.Logf("%d plants confirmed, %d refused, %d batches of unknown outcome",
		len(l.confirmed), len(l.refused), l.unknown)
}

// The server is killed under load, twice. No confirmed plant is lost.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	l := startLoad(t, openStore(t, server.Database(t)), 4)
	for range 2 {
		l.waitForMore(t, 30)
		if err := server.Kill9(); err != nil {
			t.Error(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		l.waitForMore(t, 1)
	}
	l.stop()
	l.compare(t)
}

// Connections that were lost while they were idle are replaced when they are used.
func TestServerIsRestartedWhileIdle(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	s := openStore(t, server.Database(t))
	create(t, s, record(1))
	for name, stop := range map[string]func() error{"Stop": server.Stop, "Kill9": server.Kill9} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		if outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)}); err != nil {
			t.Errorf("CreateBatch() after %s = %v, %v", name, outcomes, err)
		}
		wantStored(t, s, record(1))
	}
}

// A client whose session an operator terminates tries again with another session. The next session is
// terminated when every client has completed two batches since: one that was in flight, and one after it.
func TestSessionsAreTerminated(t *testing.T) {
	t.Parallel()
	const terminations = 12
	s := openStore(t, pgtest.Database(t))
	l := startLoad(t, s, 4)
	terminate := fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' "+
		"ORDER BY random() LIMIT 1", s.pool.Config().ConnConfig.Database)
	for range terminations {
		pgtest.Shared(t).Exec(t, terminate)
		for i := range l.batches {
			before := l.batches[i].Load()
			eventually(t, "a client has completed two batches", func() bool { return l.batches[i].Load() >= before+2 })
		}
	}
	l.stop()
	if refused := len(l.refused) / loadBatch; l.unknown > 0 || refused > terminations/4 {
		t.Errorf("%d sessions were terminated: %d batches were refused, %d are of unknown outcome",
			terminations, refused, l.unknown)
	}
	l.compare(t)
}
