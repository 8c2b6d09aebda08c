package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
)

// A session whose setting can lose confirmed plants is refused. See TestFsyncIsTurnedOff for settings of a server.
func TestUnsafeSessionsAreRefused(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	for _, value := range []string{"off", "local", "remote_write"} {
		wantUnsafe(t, address+"&synchronous_commit="+value, "synchronous_commit="+value, "plants can be lost")
	}
	openStorage(t, address+"&synchronous_commit=remote_apply")
}

func wantUnsafe(t *testing.T, address, setting, risk string) {
	t.Helper()
	err := wantOpenError(t, address, "the server runs with "+setting+", so "+risk,
		"set it to on or, if that loss is acceptable, start with --unsafe-durability")
	if !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("Open() = %v, want %v", err, storage.ErrUnavailable)
	}
	s, err := Open(t.Context(), address, Options{UnsafeDurability: true})
	if err != nil {
		t.Fatalf("Open() with %s and UnsafeDurability = %v", setting, err)
	}
	s.Close()
}

func TestEncodingIsRefused(t *testing.T) {
	server, address := pgtest.Shared(t), pgtest.Database(t)
	name := pgtest.Name(address)
	server.Exec(t, "DROP DATABASE "+name)
	server.Exec(t, "CREATE DATABASE "+name+" ENCODING 'LATIN1' TEMPLATE template0")
	wantOpenError(t, address, "the server has the encoding LATIN1", "ENCODING 'UTF8'")
	if s, err := Open(t.Context(), address, Options{UnsafeDurability: true}); err == nil {
		s.Close()
		t.Error("Open() of a LATIN1 database with UnsafeDurability = nil")
	}
}

// A session keeps the synchronous_commit that it was checked with. A new session is refused, and then the others are
// closed.
func TestSynchronousCommitIsTurnedOff(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	s := openStorage(t, server.Database(t))
	server.Reload(t, "synchronous_commit", "off")
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var value string
	if err := conn.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&value); err != nil || value != "on" {
		t.Errorf("synchronous_commit of a checked session = %s, %v, want on", value, err)
	}
	for range 2 {
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "synchronous_commit=off") {
			t.Errorf("Check() in a new session = %v, want synchronous_commit=off", err)
		}
		if conn != nil {
			conn.Release()
			conn = nil
		}
	}
	if _, err := s.CreateBatch(t.Context(), []plant.Record{record(2)}); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("CreateBatch() in a new session = %v, want %v", err, storage.ErrUnavailable)
	}
	server.Reload(t, "synchronous_commit", "")
	storagetest.Create(t, s, record(2))
}

// fsync and full_page_writes apply to all sessions at once. When Check or a new session finds them off, all
// sessions are closed, so that nothing more is confirmed.
func TestFsyncIsTurnedOff(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	address := server.Database(t)
	s := openStorage(t, address)
	for i, setting := range []string{"fsync", "full_page_writes", "fsync"} {
		fillPool(t, s).release()
		id := 10 * i
		storagetest.Create(t, s, record(id))
		server.Reload(t, setting, "off")
		if i < 2 {
			wantUnsafe(t, address, setting+"=off", "a power loss can destroy")
			err := s.Check(t.Context())
			if !errors.Is(err, storage.ErrUnavailable) || !strings.Contains(err.Error(), setting+"=off") {
				t.Errorf("Check() = %v, want %s=off", err, setting)
			}
		} else {
			conns := fillPool(t, s) // so that a read needs a new session
			if _, err := s.Get(t.Context(), "main", 1); !errors.Is(err, errUnsafe) {
				t.Errorf("Get() in a new session = %v, want %v", err, errUnsafe)
			}
			conns.release()
		}
		for i := range defaultConns + 1 { // more than there were sessions
			_, err := s.CreateBatch(t.Context(), []plant.Record{record(id + 1)})
			if !errors.Is(err, storage.ErrUnavailable) {
				t.Fatalf("CreateBatch() number %d with %s=off = %v, want %v", i, setting, err, storage.ErrUnavailable)
			}
		}
		server.Reload(t, setting, "")
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check() with %s=on again = %v", setting, err)
		}
		storagetest.Create(t, s, record(id+1))
	}
}

// The primary waits for a standby that does not exist, until an operator cancels the wait or the write ends. A commit
// is on its disk, but a failover would lose it.
func TestStandbyDoesNotConfirm(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	for name, cancel := range map[string]bool{"an operator cancels the wait": true, "nothing ends the wait": false} {
		t.Run(name, func(t *testing.T) {
			s := openStorage(t, server.Database(t))
			storagetest.Create(t, s, record(0), record(2))
			fillPool(t, s).release()
			server.Reload(t, "synchronous_standby_names", "missing")
			waitUntilCommitsWait(t, server)
			s.timeouts.Write, s.timeouts.Attempt = 5*time.Second, 4*time.Second // every first attempt has to reach the server
			writeWithoutStandby(t, s, server, cancel)
			s.timeouts = patient
			server.Reload(t, "synchronous_standby_names", "")
			pgtest.Eventually(t, "no session waits for a standby", func() bool {
				return len(server.Query(t, "postgres", waitingForStandby)) == 0
			})
			outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
			wantOutcomes(t, outcomes, err, plant.Same)
		})
	}
}

const (
	waitingForStandby = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	cancelWaits       = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
)

// writeWithoutStandby runs writes that wait for a missing standby and checks their errors.
func writeWithoutStandby(t *testing.T, s *Storage, server *pgtest.Server, cancel bool) {
	t.Helper()
	ended := make(chan struct{})
	cancelled := 0
	var wg, operator sync.WaitGroup
	operator.Go(func() {
		for cancel {
			cancelled += len(server.Query(t, "postgres", cancelWaits))
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	createOne := func(id int) func() error {
		return func() error {
			_, err := s.CreateBatch(t.Context(), []plant.Record{record(id)})
			return err
		}
	}
	for name, test := range map[string]struct {
		write func() error
		want  error
	}{
		"CreateBatch of a new plant": {createOne(1), storage.ErrUnknown},
		// It would be wrong to report that an existing plant is not stored.
		"CreateBatch of the same plant": {createOne(0), storage.ErrUnknown},
		"CreateBatch of a new plant and a taken id": {func() error {
			taken := record(2)
			taken.ID = 0
			_, err := s.CreateBatch(t.Context(), []plant.Record{taken, record(3)})
			return err
		}, storage.ErrUnknown},
		// A replace that waits keeps its row locked, so it is one that no other write needs.
		"EditBatch": {func() error {
			return storagetest.Replace(t.Context(), s, "main", 2, record(2).Content, nil)
		}, storage.ErrUnknown},
		"Check": {func() error { return s.Check(t.Context()) }, storage.ErrUnavailable},
	} {
		wg.Go(func() {
			err := test.write()
			if !errors.Is(err, test.want) || errors.Is(err, storage.ErrUnknown) && errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("%s = %v, want only %v", name, err, test.want)
			}
		})
	}
	wg.Wait()
	close(ended)
	if operator.Wait(); cancel && cancelled == 0 {
		t.Error("no wait was cancelled: nothing was tested")
	}
}

// waitUntilCommitsWait returns when commits wait for a standby. That takes a moment after the reload, because
// a background process has to apply the setting too. It leaves no session that waits.
func waitUntilCommitsWait(t *testing.T, server *pgtest.Server) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			server.Attempt("postgres", "SELECT pg_logical_emit_message(true, 'test', '')")
		}
	})
	pgtest.Eventually(t, "a commit waits for a standby", func() bool {
		return len(server.Query(t, "postgres", waitingForStandby)) > 0
	})
	stop()
	server.Exec(t, cancelWaits)
	wg.Wait()
}
