package postgres

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // the tests wait most of the time
	os.Exit(pgtest.Main(m))
}

func TestStorage(t *testing.T) {
	t.Parallel()
	runStoragetest(t, func(t *testing.T) string { return pgtest.Database(t) })
}

// runStoragetest runs the suite of all engines: see storagetest.RunOn.
func runStoragetest(t *testing.T, database func(t *testing.T) string) {
	storagetest.RunOn(t, func(t *testing.T) (first, again string) {
		address := database(t)
		return address, address
	}, func(t *testing.T, address string) storage.Storage { return openStorage(t, address) })
}

// patient are timeouts that a slow machine does not reach, and quick are those for faults that last longer. They leave
// such a machine enough time for a round trip.
var (
	patient = Timeouts{Write: 2 * time.Minute, Attempt: time.Minute, Read: time.Minute}
	quick   = Timeouts{Write: 3 * time.Second, Attempt: 1500 * time.Millisecond, Read: 1500 * time.Millisecond}
)

// openStorage opens a database with the timeouts patient, and closes it when the test ends.
func openStorage(t testing.TB, address string) *Storage {
	t.Helper()
	return openConfig(t, address, func(*pgxpool.Config) {})
}

// openConfig is openStorage after a change of the configuration of the pool.
func openConfig(t testing.TB, address string, change func(config *pgxpool.Config)) *Storage {
	t.Helper()
	config, err := ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	if config.ConnConfig.ConnectTimeout == connectTimeout {
		config.ConnConfig.ConnectTimeout = patient.Attempt
	}
	change(config)
	s := newStorage(Options{Timeouts: patient})
	if err := s.open(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// wantOpenError fails the test if Open succeeds or its error does not contain the texts.
func wantOpenError(t *testing.T, address string, texts ...string) error {
	t.Helper()
	s, err := Open(t.Context(), address, Options{})
	if err == nil {
		s.Close()
		t.Fatalf("Open() = nil, want an error that contains %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Open() = %v, want an error that contains %q", err, text)
		}
	}
	return err
}

func record(id int) plant.Record {
	return storagetest.Record("main", int64(id), fmt.Sprint("plant ", id), "-")
}

func wantOutcomes(t *testing.T, got []plant.Outcome, err error, want ...plant.Outcome) {
	t.Helper()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("CreateBatch() = %v, %v, want %v", got, err, want)
	}
}

// database returns the name of the database of a store.
func (s *Storage) database() string { return s.pool.Config().ConnConfig.Database }

// beginTx begins a transaction with a statement, in another session on a database.
func beginTx(t *testing.T, database, sql string) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).URL(database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), sql)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// waitForLock returns when a session on a database waits for a lock.
func waitForLock(t *testing.T, database string) {
	t.Helper()
	const waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '%s'"
	pgtest.Eventually(t, "a session waits for a lock", func() bool {
		return len(pgtest.Shared(t).Query(t, "postgres", fmt.Sprintf(waiting, database))) > 0
	})
}

// The connections are divided between creates, which have lanes on every server, and everything else.
func TestDivideConns(t *testing.T) {
	for _, test := range []struct{ servers, param, conns, creates, others, lanes int }{
		{0, 0, defaultConns, 4, 4, 4},
		{0, 1, 1, 1, 1, 1}, // one semaphore for all
		{0, 7, 7, 3, 4, 3},
		{0, 100, 100, 4, 96, 4},
		{1, 0, 10, 4, 4, 4},
		{3, 0, 12, 6, 4, 2},
		{10, 24, 24, 12, 10, 2},
		{10, 2, 2, 1, 1, 1},
	} {
		s := newStorage(Options{})
		s.divideConns(test.param, test.servers)
		if s.conns != test.conns || cap(s.createSlots) != test.creates || cap(s.otherSlots) != test.others ||
			s.Lanes() != test.lanes || (s.createSlots == s.otherSlots) != (s.conns == 1) {
			t.Errorf("%+v: %d connections, %d for creates, %d for others, %d lanes",
				test, s.conns, cap(s.createSlots), cap(s.otherSlots), s.Lanes())
		}
	}
}

// More clients than connections are served, with no more connections than the URL allows.
func TestPool(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{1, 3} {
		s := openStorage(t, pgtest.Database(t)+"&pool_max_conns="+fmt.Sprint(conns))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := s.CreateBatch(t.Context(), []plant.Record{record(i)}); err != nil {
					t.Errorf("CreateBatch() = %v", err)
				}
				storagetest.WantStored(t, s, record(i))
			})
		}
		wg.Wait()
		if stats := s.Stats(); stats.Bytes < 1<<20 || stats.MaxConns != conns {
			t.Errorf("Stats() = %+v, want the size of the database and %d connections", stats, conns)
		}
		if n := int(s.pool.Stat().TotalConns()); n > conns || len(s.createSlots) != 0 || len(s.otherSlots) != 0 {
			t.Errorf("pool_max_conns=%d: %d connections, %d and %d slots are still in use",
				conns, n, len(s.createSlots), len(s.otherSlots))
		}
	}
}

// Creates must not wait for reads, nor reads for creates. In a cluster a lookup of a token does not wait for reads of
// plants either, which may hang with a node.
func TestSlotsAreSeparate(t *testing.T) {
	t.Parallel()
	s := openStorage(t, pgtest.Database(t))
	occupy := func(slots chan struct{}) {
		for range cap(slots) {
			slots <- struct{}{}
		}
	}
	occupy(s.otherSlots)
	storagetest.Create(t, s, record(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "main", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Get() without a free slot = %v, want %v", err, context.Canceled)
	}
	s.divideConns(0, 0)
	occupy(s.createSlots)
	storagetest.WantStored(t, s, record(1))
	if err := storagetest.Replace(t.Context(), s, "main", 1, record(2).Content, nil); err != nil {
		t.Errorf("Replace() while all lanes are in use = %v", err)
	}
	s.divideConns(0, 2)
	occupy(s.otherSlots)
	if _, err := s.TokenByHash(t.Context(), [32]byte{}); !errors.Is(err, token.ErrUnknown) {
		t.Errorf("TokenByHash() while plants are read = %v, want %v", err, token.ErrUnknown)
	}
}

// Close waits for the connections in use. After it, every call fails at once, and nothing is stored.
func TestClose(t *testing.T) {
	t.Parallel()
	s := openStorage(t, pgtest.Database(t))
	conns := fillPool(t, s)
	released := false
	time.AfterFunc(100*time.Millisecond, func() {
		released = true
		conns.release()
	})
	if err := cmp.Or(s.Close(), s.Close()); err != nil || !released {
		t.Errorf("Close() = %v; it has waited for connections in use: %v", err, released)
	}
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(2)})
	_, getErr := s.Get(t.Context(), "main", 1)
	for _, err := range []error{err, getErr, s.Check(t.Context())} {
		if !errors.Is(err, errClosed) {
			t.Errorf("CreateBatch(), Get() or Check() after Close() = %v, want %v", err, errClosed)
		}
	}
}

func TestReadOnlyDatabase(t *testing.T) {
	server := pgtest.Shared(t)
	address := pgtest.Database(t)
	s := openStorage(t, address)
	alter := "ALTER DATABASE " + pgtest.Name(address)
	server.Exec(t, alter+" SET default_transaction_read_only = on")
	s.pool.Reset()
	err := s.Check(t.Context())
	if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Check() = %v, want read-only", err)
	}
	if _, err := s.CreateBatch(t.Context(), []plant.Record{record(1)}); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("CreateBatch() = %v, want %v", err, storage.ErrUnavailable)
	}
	server.Exec(t, alter+" RESET default_transaction_read_only")
	storagetest.Create(t, s, record(1)) // in a new session: write has closed the read-only ones, as a failover requires
}
