package postgres

import (
	"bytes"
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

// through opens a database of the shared server behind a proxy, with one connection that has been used.
// No connection is asked whether it lives, however long a slow machine leaves it idle: a fault that strikes once
// would strike the question.
func through(t *testing.T) (*Store, *proxy) {
	t.Helper()
	address, p := behindProxy(t)
	config, err := parse(address)
	if err != nil {
		t.Fatal(err)
	}
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	s := &Store{opened: time.Now()}
	s.taken.Store(int64(-caution))
	if err := s.open(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	create(t, s, record(0))
	return s, p
}

// behindProxy makes a database of the shared server and returns its URL at a proxy.
func behindProxy(t *testing.T) (address string, p *proxy) {
	t.Helper()
	server := pgtest.Shared(t)
	u, err := url.Parse(server.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	p = newProxy(t, server.Port)
	return server.Through(p.address, u.Path[1:]), p
}

func wantOutcomes(t *testing.T, got []plant.Outcome, err error, want ...plant.Outcome) {
	t.Helper()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("CreateBatch() = %v, %v, want %v", got, err, want)
	}
}

func wantStored(t *testing.T, s *Store, want plant.Record) {
	t.Helper()
	got, err := s.Get(context.Background(), want.Store, want.ID)
	if err != nil || !got.Equal(want.Plant) {
		t.Errorf("Get(%d) = %v, %v, want %v", want.ID, got, err, want)
	}
}

func TestConnectionLostBeforeTheServerHeard(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	p.set(cutRequest)
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2)})
	wantOutcomes(t, outcomes, err, plant.Created, plant.Created)
}

// A connection that can't be made at first is tried once more.
func TestConnectionIsMadeAtTheSecondTry(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	s.pool.Reset()
	p.set(goneOnce)
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	wantOutcomes(t, outcomes, err, plant.Created)
}

func TestConnectionLostWhileReading(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	for _, f := range []fault{cutRequest, cutReply} {
		p.set(f)
		wantStored(t, s, record(0))
		p.set(f)
		if page, err := s.List(t.Context(), "main", nil, 10); err != nil || len(page) != 1 {
			t.Errorf("List() = %v, %v, want one plant", page, err)
		}
		p.set(f)
		if n, err := s.Count(t.Context(), "main"); err != nil || n != 1 {
			t.Errorf("Count() = %d, %v, want 1", n, err)
		}
	}
}

// A change that may have been made is not made again: it would find the plant changed, or gone.
func TestConnectionLostWhileChanging(t *testing.T) {
	t.Parallel()
	seen, to := record(0).Plant, plant.Plant{Name: "other"}
	for name, change := range map[string]func(s *Store) error{
		"Replace": func(s *Store) error { return s.Replace(t.Context(), "main", 0, to, &seen) },
		"Remove":  func(s *Store) error { return s.Remove(t.Context(), "main", 0, nil) },
	} {
		s, p := through(t)
		// The statement is known to the session: the reply that is lost is that of the change.
		if err := s.Replace(t.Context(), "main", 1, to, &seen); !errors.Is(err, plant.ErrNotFound) {
			t.Error(err)
		}
		if err := s.Remove(t.Context(), "main", 1, nil); !errors.Is(err, plant.ErrNotFound) {
			t.Error(err)
		}
		p.set(cutReply)
		if err := change(s); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("%s() = %v, want %v", name, err, store.ErrUnknown)
		}
		if now, err := s.Get(t.Context(), "main", 0); err == nil && now.Equal(seen) {
			t.Errorf("%s() has changed nothing: nothing was tested", name)
		}
	}
}

func TestConnectionLostAfterTheCommit(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	p.set(cutReply)
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2)})
	wantOutcomes(t, outcomes, err, plant.Same, plant.Same)
	wantStored(t, s, record(1))

	// The same for a batch that expects to find ids taken.
	another := storetest.Record("main", 0, "another", "-")
	outcomes, err = s.CreateBatch(t.Context(), []plant.Record{another})
	wantOutcomes(t, outcomes, err, plant.Taken)
	s.taken.Store(int64(time.Since(s.opened) + time.Hour)) // it expects that for as long as the test takes
	p.set(cutReply)
	outcomes, err = s.CreateBatch(t.Context(), []plant.Record{record(3), record(0), another})
	wantOutcomes(t, outcomes, err, plant.Same, plant.Same, plant.Taken)
	wantStored(t, s, record(3))
}

// Repeated ids must not cost an attempt in vain for every batch.
func TestTakenIdsMakeCautious(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	s, err := Open(t.Context(), server.Database(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begun := time.Now()
	for id := range 200 {
		outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(0), record(id + 1)})
		want := plant.Same
		if id == 0 {
			want = plant.Created
		}
		wantOutcomes(t, outcomes, err, want, plant.Created)
	}
	most := 5 + int(time.Since(begun)/caution)
	s.Close() // a session tells its counts at its end
	eventually(t, "the sessions have ended", func() bool {
		return len(server.Query(t, "postgres", "SELECT 1 FROM pg_stat_activity WHERE application_name = 'plantstore'")) == 0
	})
	failures := 0
	eventually(t, "the server has counted a batch that failed", func() bool {
		rows := server.Query(t, "postgres", "SELECT sum(xact_rollback) FROM pg_stat_database")
		failures, err = strconv.Atoi(rows[0][0])
		return err == nil && failures > 0
	})
	if failures > most {
		t.Errorf("%d batches failed and were sent again, want at most %d", failures, most)
	}
}

// The plant is stored and nobody can be asked. Success would be a guess, and so would failure:
// also where the server has named the plants that it is about to commit.
func TestConnectionLostAfterTheCommitAndNoServer(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"the reply is lost": cutReplyGone, "the end of the reply is lost": cutEndGone} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unknownOutcome(t, f)
		})
	}
}

func unknownOutcome(t *testing.T, f fault) {
	s, p := through(t)
	p.set(f)
	start := time.Now()
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	if !errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("CreateBatch() = %v, want %v alone", err, store.ErrUnknown)
	}
	if d := time.Since(start); d > writeTimeout+5*time.Second {
		t.Errorf("CreateBatch() took %v, want at most %v", d, writeTimeout)
	}
	p.set(none)
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	wantOutcomes(t, outcomes, err, plant.Same)
}

// A server that was never reached has stored nothing, and the caller is told so at once.
func TestNoServer(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	s.pool.Reset()
	p.set(gone)
	start := time.Now()
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("CreateBatch() = %v, want %v alone", err, store.ErrUnavailable)
	}
	if d := time.Since(start); d > 2*connectTimeout {
		t.Errorf("CreateBatch() took %v to find no server", d)
	}
	if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Check() = %v, want %v", err, store.ErrUnavailable)
	}
	p.set(none)
	create(t, s, record(1))
}

// The server executes the lost request after the repeated one. It finds the plants there.
func TestLostRequestArrivesLate(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	p.set(delayRequest)
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2)})
	wantOutcomes(t, outcomes, err, plant.Created, plant.Created)
	close(p.goOn)
	select {
	case reply := <-p.late:
		if !bytes.Contains(reply, []byte(uniqueViolation)) {
			t.Errorf("the server answered the lost request %q, want code %s", reply, uniqueViolation)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the server has not answered the lost request: nothing was tested")
	}
	wantStored(t, s, record(1))
	if n, err := s.Count(t.Context(), "main"); err != nil || n != 3 {
		t.Errorf("Count() = %d, %v, want 3", n, err)
	}
}

// The connection is lost while the server is in the middle of the batch: plant 1 is inserted and
// not committed, plant 2 waits for another session. Whoever looked now would find neither.
func TestLostTransactionIsStillUnderWay(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	other := begun(t, s)
	if _, err := other.Exec(t.Context(), "INSERT INTO plants (store, id, name) VALUES ('main', 2, 'in the way')"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, p.cut)
	rolledBack := make(chan struct{})
	time.AfterFunc(1200*time.Millisecond, func() {
		other.Rollback(context.Background())
		close(rolledBack)
	})
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(2), record(1)})
	<-rolledBack
	// Which of the two transactions stored a plant is up to the server; that both are stored is not.
	if err != nil || slices.Contains(outcomes, plant.Taken) {
		t.Errorf("CreateBatch() = %v, %v, want no error and no plant taken", outcomes, err)
	}
	wantStored(t, s, record(1))
	wantStored(t, s, record(2))
}

// begun is a transaction of another session on the same database.
func begun(t *testing.T, s *Store) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).URL(s.pool.Config().ConnConfig.Database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// awaitLocked returns when a session on the store's database waits for a lock.
func awaitLocked(t *testing.T, s *Store) {
	t.Helper()
	waits := fmt.Sprintf("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '%s'", s.pool.Config().ConnConfig.Database)
	eventually(t, "a session waits for a lock", func() bool { return len(pgtest.Shared(t).Query(t, "postgres", waits)) > 0 })
}

// Nothing answers and nothing ends: the worst that a network can do. Connections that hung are of no use
// when it is over, and new ones are made.
func TestNetworkHangs(t *testing.T) {
	t.Parallel()
	s, p := through(t)
	useAll(t, s)
	p.set(hang)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			start := time.Now()
			_, err := s.CreateBatch(t.Context(), []plant.Record{record(100 + i)})
			if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("CreateBatch() = %v, want %v or %v", err, store.ErrUnknown, store.ErrUnavailable)
			}
			if d := time.Since(start); d > writeTimeout+5*time.Second {
				t.Errorf("CreateBatch() took %v, want at most %v", d, writeTimeout)
			}
		})
	}
	for range defaultConns - s.Lanes() { // every connection is in use, and hangs
		wg.Go(func() {
			if _, err := s.Get(t.Context(), "main", 0); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Get() = %v, want %v", err, store.ErrUnavailable)
			}
		})
	}
	wg.Wait()
	p.set(none)
	start := time.Now()
	create(t, s, record(200))
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("healed after %v, want 5s at most", d)
	}
	start = time.Now()
	s.Close()
	if d := time.Since(start); d > closeTimeout+5*time.Second {
		t.Errorf("Close() took %v, want at most %v", d, closeTimeout)
	}
}

// useAll makes the pool have as many connections as it may use.
func useAll(t *testing.T, s *Store) {
	t.Helper()
	conns := make([]*pgxpool.Conn, defaultConns)
	for i := range conns {
		var err error
		if conns[i], err = s.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		conn.Release()
	}
}

// Connections that died while nobody used them cost the first who does a moment, not all of them one each.
func TestNetworkHungWhileIdle(t *testing.T) {
	t.Parallel()
	address, p := behindProxy(t)
	s := opened(t, address)
	useAll(t, s)
	time.Sleep(1100 * time.Millisecond) // idle for long enough to be asked whether they live
	p.set(hang)
	p.set(none)
	start := time.Now()
	create(t, s, record(1))
	// The next may be taken before the loss of the first has told of the others. One second for each would be 8.
	if d := time.Since(start); d > 6*time.Second {
		t.Errorf("healed after %v, want 6s at most", d)
	}
}

func TestTableIsLocked(t *testing.T) {
	t.Parallel()
	if wait, err := time.ParseDuration(timeouts["lock_timeout"]); err != nil || wait >= attemptTimeout {
		t.Errorf("a lock is waited for for %v, %v, want less than %v of an attempt", wait, err, attemptTimeout)
	}
	// Here it is waited for for a shorter time: the rest of an attempt must suffice to connect on a busy machine.
	s := opened(t, edited(t, pgtest.Database(t), func(_ *url.URL, settings url.Values) { settings.Set("lock_timeout", "1s") }))
	other := begun(t, s)
	if _, err := other.Exec(t.Context(), "LOCK TABLE plants IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	writes := map[string]func() error{
		"CreateBatch": func() error {
			_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
			return err
		},
		"Replace": func() error { return s.Replace(t.Context(), "main", 1, plant.Plant{}, nil) },
		"Remove":  func() error { return s.Remove(t.Context(), "main", 1, nil) },
		"Check":   func() error { return s.Check(t.Context()) },
		"Get": func() error {
			_, err := s.Get(t.Context(), "main", 1)
			return err
		},
	}
	var wg sync.WaitGroup
	for name, write := range writes {
		wg.Go(func() {
			start := time.Now()
			err := write()
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "lock") {
				t.Errorf("%s = %v, want %v because of a lock", name, err, store.ErrUnavailable)
			}
			if d := time.Since(start); d > attemptTimeout+2*time.Second {
				t.Errorf("%s took %v, want less than %v", name, d, attemptTimeout)
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

// A caller who goes away in the middle of a read costs no connection: many of them would cost everybody.
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	s := opened(t, pgtest.Database(t))
	create(t, s, record(1))
	made := s.pool.Stat().NewConnsCount()
	other := begun(t, s)
	if _, err := other.Exec(t.Context(), "LOCK TABLE plants IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = s.Get(ctx, "main", 1)
	}()
	awaitLocked(t, s)
	cancel()
	select {
	case <-read: // the connection is lost already
	case <-time.After(200 * time.Millisecond):
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	<-read
	create(t, s, record(2))
	if n := s.pool.Stat().NewConnsCount() - made; n > 0 {
		t.Errorf("%d new connections after a reader has gone, want none", n)
	}
	if _, err := s.Get(ctx, "main", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Get() with an ended context = %v, want %v", err, context.Canceled)
	}
}

func TestServerHasNoConnectionLeft(t *testing.T) {
	t.Parallel()
	const most = 10
	server := pgtest.Start(t, map[string]string{"max_connections": strconv.Itoa(most)})
	s := opened(t, server.Database(t))
	s.pool.Reset()
	// Sessions that were ended a moment ago still have their places: all of them must be taken.
	var hogs []*pgx.Conn
	eventually(t, "all connections of the server are taken", func() bool {
		if conn, err := pgx.Connect(t.Context(), server.SocketURL("postgres")); err == nil {
			hogs = append(hogs, conn)
		}
		return len(hogs) == most
	})
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "no connection left") {
		t.Errorf("CreateBatch() = %v, want %v because of connections", err, store.ErrUnavailable)
	}
	if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Check() = %v, want %v", err, store.ErrUnavailable)
	}
	last := hogs[0]
	defer last.Close(context.Background())
	for _, conn := range hogs[1:] {
		conn.Close(t.Context())
	}
	eventually(t, "only one session is left", func() bool {
		var left int
		if err := last.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 1
	})
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	wantOutcomes(t, outcomes, err, plant.Created)
}

// A server that waits for a standby which never comes: a commit is on its disk, and a failover would lose it.
func TestStandbyDoesNotConfirm(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{"the wait is cut short by an operator": true, "nobody cuts the wait short": false}
	for name, cancel := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, nil)
			s := opened(t, server.Database(t))
			create(t, s, record(0), record(2))
			reload(t, server, "synchronous_standby_names", "nobody")
			awaitWaiting(t, server)

			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var cut atomic.Int64
			wg.Go(func() {
				for cancel && ctx.Err() == nil {
					rows, err := server.Attempt("postgres", "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
					if err != nil {
						t.Error(err)
					}
					cut.Add(int64(len(rows)))
					time.Sleep(20 * time.Millisecond)
				}
			})
			errs := map[string]error{}
			var mu sync.Mutex
			var writes sync.WaitGroup
			for name, write := range map[string]func() error{
				"CreateBatch of a new plant": func() error {
					_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
					return err
				},
				"CreateBatch of the same plant": func() error {
					_, err := s.CreateBatch(t.Context(), []plant.Record{record(0)})
					return err
				},
				// Of another plant: a replace that waits keeps its plant locked.
				"Replace": func() error { return s.Replace(t.Context(), "main", 2, record(2).Plant, nil) },
				"Check":   func() error { return s.Check(t.Context()) },
			} {
				writes.Go(func() {
					err := write()
					mu.Lock()
					defer mu.Unlock()
					errs[name] = err
				})
			}
			writes.Wait()
			stop()
			wg.Wait()
			if cancel && cut.Load() == 0 {
				t.Error("no wait was cut short: nothing was tested")
			}
			// Of the same plant it would be wrong to say that it is not stored: it is there.
			for name, want := range map[string]error{
				"CreateBatch of a new plant":    store.ErrUnknown,
				"CreateBatch of the same plant": store.ErrUnknown,
				"Replace":                       store.ErrUnknown,
				"Check":                         store.ErrUnavailable,
			} {
				if err := errs[name]; !errors.Is(err, want) || errors.Is(err, store.ErrUnknown) && errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s = %v, want %v alone", name, err, want)
				}
			}
			reload(t, server, "synchronous_standby_names", "")
			eventually(t, "no session waits for a standby", func() bool {
				return len(server.Query(t, "postgres", "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")) == 0
			})
			outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
			wantOutcomes(t, outcomes, err, plant.Same)
		})
	}
}

// awaitWaiting returns when commits wait for a standby: that is not before a process of the server has read
// the setting for all of them, which no session shows. It leaves no session that waits.
func awaitWaiting(t *testing.T, server *pgtest.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.SocketURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	cutShort := fmt.Sprintf("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = %d", conn.PgConn().PID())
	eventually(t, "a commit waits for a standby", func() (waited bool) {
		committed := make(chan error, 1)
		go func() {
			_, err := conn.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'test', '')")
			committed <- err
		}()
		for {
			select {
			case err := <-committed:
				if err != nil {
					t.Fatal(err)
				}
				return waited
			case <-time.After(5 * time.Millisecond):
				waited = len(server.Query(t, "postgres", cutShort)) > 0 || waited
			}
		}
	})
}

// ledger notes what the store has said: what it has stored, and what it certainly has not.
type ledger struct {
	mu        sync.Mutex
	confirmed []plant.Record
	refused   []plant.Record
	unknown   int
}

func (l *ledger) compare(t *testing.T, s *Store) {
	t.Helper()
	for _, r := range l.confirmed {
		wantStored(t, s, r)
	}
	for _, r := range l.refused {
		if p, err := s.Get(t.Context(), r.Store, r.ID); !errors.Is(err, plant.ErrNotFound) {
			t.Errorf("Get(%d), of which it was said that it is not stored = %v, %v", r.ID, p, err)
		}
	}
	t.Logf("%d plants confirmed, %d refused, %d batches of unknown outcome", len(l.confirmed), len(l.refused), l.unknown)
}

// The postmaster is killed under load, twice. Whatever was confirmed is there when it is back.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	address := server.Database(t)
	s := opened(t, address)
	var ids atomic.Int64
	var kept ledger
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					createSome(t, s, &ids, &kept)
				}
			}
		})
	}
	for range 2 {
		kept.awaitMore(t, 30)
		if err := server.Kill9(); err != nil {
			t.Error(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		kept.awaitMore(t, 1)
	}
	close(stop)
	wg.Wait()
	kept.compare(t, s)
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.confirmed)
}

// awaitMore returns when so many more plants are confirmed.
func (l *ledger) awaitMore(t *testing.T, n int) {
	t.Helper()
	before := l.size()
	eventually(t, fmt.Sprintf("%d more plants are confirmed", n), func() bool { return l.size() >= before+n })
}

const batchOfSome = 3

func createSome(t *testing.T, s *Store, ids *atomic.Int64, kept *ledger) {
	batch := make([]plant.Record, batchOfSome)
	for i := range batch {
		batch[i] = record(int(ids.Add(1)))
	}
	outcomes, err := s.CreateBatch(context.Background(), batch)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrUnknown):
		kept.unknown++
	case errors.Is(err, store.ErrUnavailable):
		kept.refused = append(kept.refused, batch...)
		time.Sleep(time.Millisecond)
	case err != nil:
		t.Errorf("CreateBatch() = %v", err)
	default:
		for i, outcome := range outcomes {
			if outcome == plant.Taken {
				t.Errorf("plant %d is taken", batch[i].ID)
			}
		}
		kept.confirmed = append(kept.confirmed, batch...)
	}
}

// Connections that died while they were idle are not noticed before they are used.
func TestServerIsRestartedWhileIdle(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	s := opened(t, server.Database(t))
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

// Sessions that an operator ends one by one are hardly noticed: whoever loses one tries again with
// another. The next is ended when every client has had its answers since, however long that takes.
func TestSessionsAreTerminated(t *testing.T) {
	t.Parallel()
	const clients, ends = 4, 12
	s := opened(t, pgtest.Database(t))
	database := s.pool.Config().ConnConfig.Database
	var ids atomic.Int64
	var kept ledger
	var answered [clients]atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					createSome(t, s, &ids, &kept)
					answered[i].Add(1)
				}
			}
		})
	}
	for range ends {
		pgtest.Shared(t).Exec(t, fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' ORDER BY random() LIMIT 1", database))
		for i := range answered {
			// The one that was under way, and one that began after it.
			for before := answered[i].Load(); answered[i].Load() < before+2; {
				time.Sleep(time.Millisecond)
			}
		}
	}
	close(stop)
	wg.Wait()
	if refused := len(kept.refused) / batchOfSome; kept.unknown > 0 || refused > ends/4 {
		t.Errorf("%d sessions were ended: %d batches were refused, %d are of unknown outcome", ends, refused, kept.unknown)
	}
	kept.compare(t, s)
}

// Two transactions that wait for each other: the server ends ours, and it is tried again.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	// The server looks for a deadlock once in a wait, so long after it began. Here that is late enough for the
	// other to have begun to wait on a slow machine, and the other never looks. No lock_timeout comes before it.
	s := opened(t, edited(t, pgtest.Database(t), func(_ *url.URL, settings url.Values) {
		settings.Set("deadlock_timeout", "2s")
		settings.Set("lock_timeout", "0")
	}))
	other := begun(t, s)
	if _, err := other.Exec(t.Context(), "SET deadlock_timeout = '1min'"); err != nil {
		t.Fatal(err)
	}
	insert := func(id int) {
		if _, err := other.Exec(t.Context(), "INSERT INTO plants (store, id, name) VALUES ('main', $1, 'in the way')", id); err != nil {
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
	awaitLocked(t, s)
	insert(1) // waits for the batch, which waits for plant 2
	if err := other.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// between removes plant 1 each time before it is read, so many times, and creates it again
// each time after that but the last.
type between struct {
	t     *testing.T
	other *Store
	times int
}

func (b *between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL != selectPlants || b.times == 0 {
		return ctx
	}
	b.times--
	if err := b.other.Remove(context.Background(), "main", 1, nil); err != nil {
		b.t.Error(err)
	}
	return context.WithValue(ctx, b, b.times > 0)
}

func (b *between) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if again, _ := ctx.Value(b).(bool); again {
		create(b.t, b.other, storetest.Record("main", 1, "in the way", "-"))
	}
}

// A plant that stood in the way and is gone before it could be compared leaves its id free.
func TestPlantVanishesBeforeItIsCompared(t *testing.T) {
	t.Parallel()
	alone := []plant.Record{record(1)}
	among := []plant.Record{record(1), record(2), record(2)}
	for _, test := range []struct {
		times int
		batch []plant.Record
		want  []plant.Outcome
	}{
		{1, alone, []plant.Outcome{plant.Created}},
		{1, among, []plant.Outcome{plant.Created, plant.Created, plant.Same}},
		{maxRounds + 1, alone, []plant.Outcome{plant.Created}},
		{maxRounds + 1, among, []plant.Outcome{plant.Created, plant.Created, plant.Same}},
	} {
		address := pgtest.Database(t)
		other := opened(t, address)
		create(t, other, storetest.Record("main", 1, "in the way", "-"))
		config, err := parse(address)
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.Tracer = &between{t, other, test.times}
		s := new(Store)
		if err := s.open(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		outcomes, err := s.CreateBatch(t.Context(), test.batch)
		wantOutcomes(t, outcomes, err, test.want...)
		s.Close()
	}
}

// Plants that others create and remove all the time are decided one way or the other.
func TestPlantsComeAndGo(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	here, there := opened(t, address), opened(t, address)
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
							t.Errorf("Remove() of what was created = %v", err)
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
