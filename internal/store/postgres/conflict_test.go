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
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/plant"
	"plantstore/internal/store"
	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/store/storetest"
)

// tracer counts the statements that a store prepares, and calls functions before and after queries.
type tracer struct {
	prepared      map[string]int // by text
	before, after func(sql string)
}

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if c.before != nil {
		c.before(data.SQL)
	}
	return context.WithValue(ctx, c, data.SQL)
}

func (c *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, ok := ctx.Value(c).(string); ok && c.after != nil {
		c.after(sql)
	}
}

func (c *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	if c.prepared != nil {
		c.prepared[data.SQL]++
	}
	return ctx
}

func (c *tracer) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// openTraced opens a database with a tracer.
func openTraced(t *testing.T, address string, tracer *tracer) *Store {
	t.Helper()
	return openConfig(t, address, func(config *pgxpool.Config) { config.ConnConfig.Tracer = tracer })
}

// A plain INSERT is used for new ids, and ON CONFLICT for a second after an id existed.
func TestPlainInsertIsTriedFirst(t *testing.T) {
	t.Parallel()
	sent := map[string]int{}
	count := func(sql string) {
		if sql == selectPlants {
			sent[sql]++
		}
	}
	s := openTraced(t, pgtest.Database(t), &tracer{prepared: sent, after: count})
	// want creates a plant and checks how often each statement has been sent for it.
	want := func(id, plain, onConflict, selects int) {
		t.Helper()
		clear(sent)
		create(t, s, record(id))
		if sent[insertPlants] != plain || sent[insertAbsent] != onConflict || (sent[selectPlants] > 0) != (selects > 0) {
			t.Errorf("plant %d: the statements are %v, want %d plain INSERT, %d with ON CONFLICT, %d SELECT",
				id, sent, plain, onConflict, selects)
		}
	}
	ago := func(d time.Duration) { s.lastDuplicate.Store(int64(time.Since(s.opened) - d)) }
	want(1, 1, 0, 0)
	want(2, 1, 0, 0)
	want(1, 1, 1, 1)
	ago(-time.Hour) // as long as the test takes
	want(1, 0, 1, 1)
	want(3, 0, 1, 0) // a new plant needs no SELECT
	ago(onConflictPeriod)
	want(4, 1, 0, 0)
	want(4, 1, 1, 1)
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
		"Replace":     func() error { return storetest.Replace(t.Context(), s, "main", 1, plant.Plant{}, nil) },
		"Remove":      func() error { return storetest.Remove(t.Context(), s, "main", 1, nil) },
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

// removeBefore returns a tracer that removes plant 1 before each of the next queries of existing plants, and
// creates it again after all but the last. It counts the queries down.
func removeBefore(t *testing.T, other *Store, times *int) *tracer {
	create(t, other, storetest.Record("main", 1, "other", "-"))
	return &tracer{
		before: func(sql string) {
			if sql != selectPlants || *times == 0 {
				return
			}
			if err := storetest.Remove(context.Background(), other, "main", 1, nil); err != nil {
				t.Error(err)
			}
		},
		after: func(sql string) {
			if sql != selectPlants || *times == 0 {
				return
			}
			if *times--; *times > 0 {
				create(t, other, storetest.Record("main", 1, "other", "-"))
			}
		},
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
		s := openTraced(t, address, removeBefore(t, openStore(t, address), &test.times))
		outcomes, err := s.CreateBatch(t.Context(), test.batch)
		wantOutcomes(t, outcomes, err, test.want...)
	}
}

// A batch whose existing plant is removed in each round is refused, and nothing of it is stored.
func TestPlantIsAlwaysRemoved(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	times := 1000
	s := openTraced(t, address, removeBefore(t, openStore(t, address), &times))
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	if !errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("CreateBatch() = %v, want only %v", err, store.ErrBusy)
	}
	if got, want := 1000-times, maxAttempts*maxRounds; got != want {
		t.Errorf("the plants were compared %d times, want %d", got, want)
	}
}

// Batches of edits of the same plants, in any order, do not deadlock.
func TestConcurrentEdits(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	here, there := openStore(t, address), openStore(t, address)
	create(t, here, record(1), record(2), record(3))
	sqlQuery(t, address, "ALTER DATABASE "+databaseOf(t, address)+" SET deadlock_timeout = '10ms'")
	var made [4]atomic.Int64
	var wg sync.WaitGroup
	for c, s := range []*Store{here, there, here, there} {
		wg.Go(func() {
			for n := range 50 {
				var edits []plant.Edit
				for i := range 3 {
					id := int64(1 + (i+c)%3)
					now, err := s.Get(context.Background(), "main", id)
					if err != nil {
						t.Error(err)
						return
					}
					edits = append(edits, plant.Edit{
						Key: plant.Key{Store: "main", ID: id}, To: &plant.Plant{Name: fmt.Sprint(c, " ", n)}, Seen: &now.Plant,
					})
				}
				outcomes, err := s.EditBatch(context.Background(), edits)
				if err != nil {
					t.Errorf("EditBatch() = %v", err)
					return
				}
				for i, outcome := range outcomes {
					if outcome == plant.Replaced {
						made[edits[i].ID].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for id := range 3 {
		if n := made[id+1].Load(); n < 50 {
			t.Errorf("%d of 200 edits of plant %d were made, want one of four at least", n, id+1)
		}
	}
	deadlocks := sqlQuery(t, address, "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()")
	if fmt.Sprint(deadlocks) != "[[0]]" {
		t.Errorf("%v deadlocks, want none", deadlocks)
	}
}

// A large plant that is removed between the query of the page and its own is not in the page.
func TestLargePlantIsRemovedDuringList(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	other := openStore(t, address)
	create(t, other, storetest.Record("main", 1, strings.Repeat("x", 70_000), "-"), record(2))
	s := openTraced(t, address, &tracer{before: func(sql string) {
		if sql == getPlant {
			if err := storetest.Remove(context.Background(), other, "main", 1, nil); err != nil {
				t.Error(err)
			}
		}
	}})
	page, err := s.List(t.Context(), "main", nil, 10)
	if err != nil || len(page) != 1 || page[0].ID != 2 {
		t.Errorf("List() = %d plants, %v, want plant 2", len(page), err)
	}
}

// An insert that did not store the plants that were sent, because of a trigger, has an unknown outcome.
func TestTriggerChangesAnInsert(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	s := openStore(t, address)
	conn, err := s.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	sqlQuery(t, address, `
		CREATE FUNCTION change() RETURNS trigger AS $$ BEGIN
			IF NEW.id = 1 THEN RETURN NULL; END IF;
			NEW.id := 100;
			RETURN NEW;
		END $$ LANGUAGE plpgsql;
		CREATE TRIGGER change BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION change()`)
	b := newBatch([]plant.Record{record(1), record(2)})
	defer b.free()
	outcomes := make([]plant.Outcome, 2)
	stored, err := b.insertNew(t.Context(), conn.Conn(), outcomes)
	if !stored || err == nil || err.Error() != "the server stored 1 of 2 plants" || outcomes[0] != 0 {
		t.Errorf("insertNew() = %v, %v", stored, err)
	}
	sqlQuery(t, address, "DELETE FROM plants")
	stored, err = b.insertAbsent(t.Context(), conn.Conn(), b.firsts)
	if !stored || err == nil || err.Error() != "the server returned a plant that was not sent" {
		t.Errorf("insertAbsent() = %v, %v", stored, err)
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
						if err := storetest.Remove(context.Background(), s, "main", batch[i].ID, &batch[i].Plant); err != nil {
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
