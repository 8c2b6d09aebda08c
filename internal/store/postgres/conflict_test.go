package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

// tracer counts the statements of a store by their text.
type tracer struct {
	mu    sync.Mutex
	count map[string]int
}

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (c *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[data.SQL]++
	return ctx
}

func (c *tracer) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// A plain INSERT is used for new ids, and ON CONFLICT for a second after an id existed.
func TestPlainInsertIsTriedFirst(t *testing.T) {
	t.Parallel()
	sent := &tracer{count: map[string]int{}}
	s := openConfig(t, pgtest.Database(t), func(config *pgxpool.Config) { config.ConnConfig.Tracer = sent })
	// want creates a plant and checks how often each statement has been sent for it.
	want := func(id, plain, onConflict int) {
		t.Helper()
		clear(sent.count)
		create(t, s, record(id))
		if sent.count[insertPlants] != plain || sent.count[insertAbsent] != onConflict {
			t.Errorf("plant %d was sent %d times as plain INSERT and %d times with ON CONFLICT, want %d and %d",
				id, sent.count[insertPlants], sent.count[insertAbsent], plain, onConflict)
		}
	}
	ago := func(d time.Duration) { s.lastDuplicate.Store(int64(time.Since(s.opened) - d)) }
	want(1, 1, 0)
	want(2, 1, 0)
	want(1, 1, 1)
	ago(-time.Hour) // as long as the test takes
	want(1, 0, 1)
	want(3, 0, 1)
	ago(onConflictPeriod)
	want(4, 1, 0)
	want(4, 1, 1)
	if since := time.Since(s.opened) - time.Duration(s.lastDuplicate.Load()); since < 0 || since > time.Minute {
		t.Errorf("the existing id was recorded %v ago, want now", since)
	}
}

// Existing ids must not cost a failed attempt in every batch.
func TestExistingIDsCostFewFailures(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	s := openStore(t, server.Database(t))
	start := time.Now()
	for id := range 200 {
		outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(0), record(id + 1)})
		want := plant.Same
		if id == 0 {
			want = plant.Created
		}
		wantOutcomes(t, outcomes, err, want, plant.Created)
	}
	limit := 5 + int(time.Since(start)/onConflictPeriod)
	s.Close() // a session reports its counts when it ends
	eventually(t, "the sessions have ended", func() bool {
		const sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'plantstore'"
		return len(server.Query(t, "postgres", sessions)) == 0
	})
	failures := 0
	eventually(t, "the server has counted a batch that failed", func() (counted bool) {
		rows := server.Query(t, "postgres", "SELECT sum(xact_rollback) FROM pg_stat_database")
		var err error
		failures, err = strconv.Atoi(rows[0][0])
		return err == nil && failures > 0
	})
	if failures > limit {
		t.Errorf("%d batches failed and were sent again, want at most %d", failures, limit)
	}
}

func TestTableIsLocked(t *testing.T) {
	t.Parallel()
	// A short lock_timeout leaves enough of an attempt to connect on a slow machine.
	s := openStore(t, withParam(t, pgtest.Database(t), "lock_timeout", "1s"))
	other := beginTx(t, s)
	if _, err := other.Exec(t.Context(), "LOCK TABLE plants IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for name, call := range map[string]func() error{
		"CreateBatch": func() error { _, err := s.CreateBatch(t.Context(), []plant.Record{record(1)}); return err },
		"Replace":     func() error { return s.Replace(t.Context(), "main", 1, plant.Plant{}, nil) },
		"Remove":      func() error { return s.Remove(t.Context(), "main", 1, nil) },
		"Check":       func() error { return s.Check(t.Context()) },
		"Get":         func() error { _, err := s.Get(t.Context(), "main", 1); return err },
	} {
		wg.Go(func() {
			err := call()
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "held a lock for too long") {
				t.Errorf("%s = %v, want %v because of a lock", name, err, store.ErrUnavailable)
			}
		})
	}
	wg.Wait()
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	create(t, s, record(1))
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check() after the lock = %v", err)
	}
}

// The server aborts our transaction in a deadlock, and it is tried again.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	// A session checks for a deadlock once, deadlock_timeout after it started to wait. Ours checks late enough
	// for the other to wait by then on a slow machine, and the other never checks.
	s := openStore(t, editURL(t, pgtest.Database(t), func(_ *url.URL, params url.Values) {
		params.Set("deadlock_timeout", "2s")
		params.Set("lock_timeout", "0")
	}))
	other := beginTx(t, s)
	if _, err := other.Exec(t.Context(), "SET deadlock_timeout = '1min'"); err != nil {
		t.Fatal(err)
	}
	insert := func(id int) {
		const insert = "INSERT INTO plants (store, id, name) VALUES ('main', $1, 'other')"
		if _, err := other.Exec(t.Context(), insert, id); err != nil {
			t.Error(err)
		}
	}
	insert(2)
	created := make(chan struct{})
	go func() {
		defer close(created)
		outcomes, err := s.CreateBatch(context.Background(), []plant.Record{record(1), record(2), record(3)})
		wantOutcomes(t, outcomes, err, plant.Taken, plant.Taken, plant.Created)
	}()
	defer func() { <-created }()
	waitForLock(t, s.pool.Config().ConnConfig.Database)
	insert(1) // waits for the batch, which waits for plant 2
	if err := other.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// remover removes plant 1 before each of the next queries of existing plants, and creates it again after all
// but the last.
type remover struct {
	t     *testing.T
	other *Store
	times int
}

func (r *remover) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL != selectPlants || r.times == 0 {
		return ctx
	}
	r.times--
	if err := r.other.Remove(context.Background(), "main", 1, nil); err != nil {
		r.t.Error(err)
	}
	return context.WithValue(ctx, r, r.times > 0)
}

func (r *remover) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if again, _ := ctx.Value(r).(bool); again {
		create(r.t, r.other, storetest.Record("main", 1, "other", "-"))
	}
}

// The id of a plant that is removed before it is compared can be created.
func TestPlantIsRemovedBeforeItIsCompared(t *testing.T) {
	t.Parallel()
	one := []plant.Record{record(1)}
	several := []plant.Record{record(1), record(2), record(2)}
	for _, test := range []struct {
		times int
		batch []plant.Record
		want  []plant.Outcome
	}{
		{1, one, []plant.Outcome{plant.Created}},
		{1, several, []plant.Outcome{plant.Created, plant.Created, plant.Same}},
		{maxRounds + 1, one, []plant.Outcome{plant.Created}},
		{maxRounds + 1, several, []plant.Outcome{plant.Created, plant.Created, plant.Same}},
	} {
		address := pgtest.Database(t)
		other := openStore(t, address)
		create(t, other, storetest.Record("main", 1, "other", "-"))
		s := openConfig(t, address, func(config *pgxpool.Config) {
			config.ConnConfig.Tracer = &remover{t, other, test.times}
		})
		outcomes, err := s.CreateBatch(t.Context(), test.batch)
		wantOutcomes(t, outcomes, err, test.want...)
	}
}

// A batch whose existing plant is removed in each round is refused, and nothing of it is stored.
func TestPlantIsAlwaysRemoved(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	other := openStore(t, address)
	create(t, other, storetest.Record("main", 1, "other", "-"))
	removals := &remover{t, other, 1000}
	s := openConfig(t, address, func(config *pgxpool.Config) { config.ConnConfig.Tracer = removals })
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	if !errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("CreateBatch() = %v, want only %v", err, store.ErrBusy)
	}
	if got, want := 1000-removals.times, maxAttempts*maxRounds; got != want {
		t.Errorf("the plants were compared %d times, want %d", got, want)
	}
}

// Batches of ids that are created and removed all the time get an outcome.
func TestConcurrentCreateAndRemove(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	here, there := openStore(t, address), openStore(t, address)
	deadline := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for c, s := range []*Store{here, there, here, there} {
		wg.Go(func() {
			for time.Now().Before(deadline) {
				batch := []plant.Record{
					storetest.Record("main", 2, fmt.Sprint(c), "-"),
					storetest.Record("main", 1, fmt.Sprint(c), "-"),
				}
				if c%2 == 0 {
					slices.Reverse(batch)
				}
				outcomes, err := s.CreateBatch(context.Background(), batch)
				if err != nil {
					t.Errorf("CreateBatch() = %v", err)
					return
				}
				for i, outcome := range outcomes {
					if outcome == plant.Created {
						if err := s.Remove(context.Background(), "main", batch[i].ID, &batch[i].Plant); err != nil {
							t.Errorf("Remove() of a plant that was created = %v", err)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	if n, err := here.Count(t.Context(), "main"); err != nil || n != 0 {
		t.Errorf("Count() = %d, %v, want 0", n, err)
	}
}
