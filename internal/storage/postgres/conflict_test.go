package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
)

// A call that waits for a lock ends with the certainty that nothing was stored, directly and behind a pooler.
func TestTableIsLocked(t *testing.T) {
	t.Parallel()
	name := pgtest.Name(pgtest.Database(t))
	for _, address := range []string{
		pgtest.Shared(t).URL(name), startPooler(t).URL(name),
	} {
		// A short lock_timeout leaves enough of an attempt to connect on a slow machine.
		s := openStorage(t, address+"&lock_timeout=200ms")
		other := beginTx(t, s.database(), "LOCK TABLE plants IN ACCESS EXCLUSIVE MODE")
		var wg sync.WaitGroup
		for name, call := range map[string]func() error{
			"CreateBatch": func() error { _, err := s.CreateBatch(t.Context(), []plant.Record{record(1)}); return err },
			"Remove":      func() error { return storagetest.Remove(t.Context(), s, "main", 1, nil) },
			"Check":       func() error { return s.Check(t.Context()) },
		} {
			wg.Go(func() {
				err := call()
				if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "held a lock for too long") {
					t.Errorf("%s = %v, want %v because of a lock", name, err, storage.ErrUnavailable)
				}
			})
		}
		wg.Wait()
		if err := other.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		storagetest.Create(t, s, record(1))
	}
}

// remover removes plant 1 before each of the next queries of existing plants, and creates it again after all but the
// last.
type remover struct {
	t     *testing.T
	other *Storage
	times int // counted down
}

func (r *remover) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL != selectPlants || r.times == 0 {
		return ctx
	}
	if err := storagetest.Remove(context.Background(), r.other, "main", 1, nil); err != nil {
		r.t.Error(err)
	}
	return context.WithValue(ctx, r, true)
}

func (r *remover) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(r) == nil {
		return
	}
	if r.times--; r.times > 0 {
		storagetest.Create(r.t, r.other, storagetest.Record("main", 1, "other", "-"))
	}
}

// The id of a plant that is removed before it is compared can be created. A batch whose existing plant is removed in
// each attempt is refused, and nothing of it is stored.
func TestPlantIsRemovedBeforeItIsCompared(t *testing.T) {
	t.Parallel()
	batch := []plant.Record{record(1), record(2), record(2)}
	for _, times := range []int{1, 4, 1000} {
		address := pgtest.Database(t)
		r := &remover{t, openStorage(t, address), times}
		storagetest.Create(t, r.other, storagetest.Record("main", 1, "other", "-"))
		s := openConfig(t, address, func(config *pgxpool.Config) { config.ConnConfig.Tracer = r })
		if times == 1000 {
			batch = batch[:1]
		}
		outcomes, err := s.CreateBatch(t.Context(), batch)
		if times < 1000 {
			wantOutcomes(t, outcomes, err, plant.Created, plant.Created, plant.Same)
			continue
		}
		if !errors.Is(err, storage.ErrBusy) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("CreateBatch() = %v, want only %v", err, storage.ErrBusy)
		}
		if got, want := times-r.times, maxAttempts; got != want {
			t.Errorf("the plants were compared %d times, want %d", got, want)
		}
	}
}

// An insert that did not store the plants that were sent, because of a trigger, has an unknown outcome.
func TestTriggerChangesAnInsert(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	s := openStorage(t, address)
	sqlQuery(t, address, `
		CREATE FUNCTION change() RETURNS trigger AS $$ BEGIN
			IF NEW.id = 1 THEN RETURN NULL; END IF;
			RETURN NEW;
		END $$ LANGUAGE plpgsql;
		CREATE TRIGGER change BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION change()`)
	stored := false
	err := s.withConn(t.Context(), func(conn *pgx.Conn) (err error) {
		stored, err = newBatch([]plant.Record{record(1), record(2)}).create(t.Context(), conn)
		return err
	})
	if !stored || err == nil || err.Error() != "the server stored 1 of 2 plants" {
		t.Errorf("create() = %v, %v", stored, err)
	}
}

// Batches that create, edit and remove the same plants at the same time, in any order, have no deadlocks.
func TestConcurrentBatches(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	here, there := openStorage(t, address), openStorage(t, address)
	sqlQuery(t, address, "ALTER DATABASE "+pgtest.Name(address)+" SET deadlock_timeout = '10ms'")
	var changes atomic.Int64
	var wg sync.WaitGroup
	for c, s := range []*Storage{here, there, here, there} {
		wg.Go(func() {
			for n := range 40 {
				batch := []plant.Record{record(1), record(2), record(3)}
				edits := []plant.Edit{rename(1, "new", true), rename(2, "new", true), remove(3)}
				if c%2 == 0 {
					slices.Reverse(batch)
					slices.Reverse(edits)
				}
				_, err := s.CreateBatch(context.Background(), batch)
				for errors.Is(err, errRemoved) { // the others have removed the plants five times
					_, err = s.CreateBatch(context.Background(), batch)
				}
				outcomes, editErr := s.EditBatch(context.Background(), edits)
				_, removeErr := s.EditBatch(context.Background(), []plant.Edit{remove(n%2 + 1)})
				if err := errors.Join(err, editErr, removeErr); err != nil {
					t.Errorf("CreateBatch() or EditBatch() = %v", err)
				}
				for _, outcome := range outcomes {
					if outcome == plant.Replaced || outcome == plant.Removed {
						changes.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := changes.Load(); n < 40 {
		t.Errorf("%d edits were made, want more: nothing was tested", n)
	}
	here.Close() // a session reports its counts when it ends
	there.Close()
	pgtest.Eventually(t, "the sessions have ended", func() bool {
		const others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
		return len(sqlQuery(t, address, others)) == 0
	})
	deadlocks := sqlQuery(t, address, "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()")
	if fmt.Sprint(deadlocks) != "[[0]]" {
		t.Errorf("%v deadlocks, want none", deadlocks)
	}
}

// A batch that fails because the disk is full stored nothing, also if one of its plants was stored before.
func TestFullDiskAfterRepeat(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	s := openStorage(t, address)
	storagetest.Create(t, s, record(1))
	sqlQuery(t, address, `
		CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN
			IF NEW.id = 1 THEN RETURN NEW; END IF;
			RAISE 'no space' USING ERRCODE = '53100';
		END $$ LANGUAGE plpgsql;
		CREATE TRIGGER refuse AFTER INSERT ON plants FOR EACH ROW EXECUTE FUNCTION refuse()`)
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2)})
	if !errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrUnknown) {
		t.Errorf("CreateBatch() = %v, want only %v", err, storage.ErrFull)
	}
}
