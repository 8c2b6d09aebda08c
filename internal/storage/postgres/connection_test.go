package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
	"plantstore/test/testkit/proxy"
)

// A write tries once more if a request does not reach the server, or a connection fails. A read also does so if a reply
// is lost.
func TestConnectionLostBeforeTheRequest(t *testing.T) {
	t.Parallel()
	s, p := openBehindProxy(t)
	p.Set(loseRequest())
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2)})
	wantOutcomes(t, outcomes, err, plant.Created, plant.Created)
	s.pool.Reset()
	p.Refuse(1)
	outcomes, err = s.CreateBatch(t.Context(), []plant.Record{record(3)})
	wantOutcomes(t, outcomes, err, plant.Created)
	for _, fault := range []func() proxy.Fault{loseRequest, loseReply} {
		p.Set(fault())
		storagetest.WantStored(t, s, record(0))
		p.Set(fault())
		page, err := s.List(t.Context(), "main", nil, 10)
		p.Set(fault())
		if n, countErr := s.Count(t.Context(), "main"); cmp.Or(err, countErr) != nil || len(page) != 4 || n != 4 {
			t.Errorf("List() = %v, %v, and Count() = %d, %v, want four plants", page, err, n, countErr)
		}
	}
}

// The insert of a token is not repeated: it would find the name taken. A revocation is repeated.
func TestConnectionLostDuringTokenUpdate(t *testing.T) {
	t.Parallel()
	s, p := openBehindProxy(t)
	zero := token.Token{Name: "zero", Created: time.UnixMilli(1)}
	one := token.Token{Name: "one", Hash: sha256.Sum256(nil), Created: time.UnixMilli(2)}
	// The statements are prepared, so that the next reply is that of the update.
	if err := cmp.Or(s.AddToken(t.Context(), zero), s.RevokeToken(t.Context(), "zero", time.UnixMilli(2))); err != nil {
		t.Fatal(err)
	}
	p.Set(loseReply())
	if err := s.AddToken(t.Context(), one); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("AddToken() = %v, want %v", err, storage.ErrUnknown)
	}
	if err := s.AddToken(t.Context(), one); !errors.Is(err, token.ErrNameTaken) {
		t.Errorf("AddToken() of a stored token = %v, want %v", err, token.ErrNameTaken)
	}
	p.Set(loseReply())
	if err := s.RevokeToken(t.Context(), "one", time.UnixMilli(3)); err != nil {
		t.Errorf("RevokeToken() = %v", err)
	}
	all, err := s.Tokens(t.Context())
	if err != nil || len(all) != 2 || all[1].Revoked.UnixMilli() != 3 {
		t.Errorf("Tokens() = %v, %v, want the second revoked", all, err)
	}
}

func TestConnectionLostAfterCommit(t *testing.T) {
	t.Parallel()
	s, p := openBehindProxy(t)
	p.Set(loseReply())
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1), record(2)})
	wantOutcomes(t, outcomes, err, plant.Same, plant.Same)
	storagetest.WantStored(t, s, record(1))

	// The same for a batch with existing ids, whose second insert stores the others.
	another := storagetest.Record("main", 0, "another", "-")
	lost := false
	p.Set(func(c *proxy.Chunk) ([]byte, bool) {
		if !bytes.Contains(c.Data, []byte("INSERT 0 1\x00")) || lost { // the reply to the second insert
			return c.Data, true
		}
		lost = true
		return nil, false
	})
	outcomes, err = s.CreateBatch(t.Context(), []plant.Record{record(3), record(0), another})
	wantOutcomes(t, outcomes, err, plant.Same, plant.Same, plant.Taken)
	storagetest.WantStored(t, s, record(3))
	if !lost {
		t.Error("no reply was lost: nothing was tested")
	}
}

// The plant is stored and the server can't be reached again: neither success nor failure is certain. The same
// holds if the server has returned the plants, because it commits after that.
func TestServerLostAfterCommit(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]int{"the reply": 1 << 20, "the end of the reply": readyForQueryLen} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := openBehindProxy(t)
			s.timeouts = quick
			p.Set(proxy.Once(proxy.Replies, func(c *proxy.Chunk) ([]byte, bool) {
				p.Refuse(-1)
				return c.Data[:max(0, len(c.Data)-lost)], false
			}))
			_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
			if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("CreateBatch() = %v, want only %v", err, storage.ErrUnknown)
			}
			p.Refuse(0)
			s.timeouts = patient
			outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
			wantOutcomes(t, outcomes, err, plant.Same)
		})
	}
}

// A server that was never reached has stored nothing, and a call does not wait for its timeout.
func TestNoServer(t *testing.T) {
	t.Parallel()
	s, p := openBehindProxy(t)
	s.pool.Reset()
	p.Refuse(-1)
	s.timeouts.Write, s.timeouts.Read = time.Hour, time.Hour
	_, err := s.CreateBatch(t.Context(), []plant.Record{record(1)})
	_, getErr := s.Get(t.Context(), "main", 1)
	for _, err := range []error{err, getErr, s.Check(t.Context())} {
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("CreateBatch(), Get() or Check() = %v, want only %v", err, storage.ErrUnavailable)
		}
	}
	s.timeouts = patient
	p.Refuse(0)
	storagetest.Create(t, s, record(1))
}

// The connection is lost while the server executes the batch: plant 1 is inserted and not committed, plant 2
// waits for another session. A query would find neither.
func TestConnectionLostDuringInsert(t *testing.T) {
	t.Parallel()
	s, p := openBehindProxy(t, "&lock_timeout=0") // on a slow machine the lock may be held for longer than usual
	const insert = "INSERT INTO plants (store, id, name) VALUES ('main', 2, 'uncommitted')"
	other := beginTx(t, s.database(), insert)
	rolledBack := make(chan struct{})
	go func() {
		defer close(rolledBack)
		waitForLock(t, s.database())
		p.Cut()
		time.Sleep(300 * time.Millisecond) // usually enough for the second attempt to wait for the first
		other.Rollback(context.Background())
	}()
	outcomes, err := s.CreateBatch(t.Context(), []plant.Record{record(2), record(1)})
	<-rolledBack
	// Either of the two attempts may have stored a plant.
	if err != nil || slices.Contains(outcomes, plant.Taken) {
		t.Errorf("CreateBatch() = %v, %v, want no error and no plant taken", outcomes, err)
	}
	storagetest.WantStored(t, s, record(1))
	storagetest.WantStored(t, s, record(2))
}

// A network that neither replies nor closes connections must not block a call beyond its timeout.
func TestNetworkHangs(t *testing.T) {
	t.Parallel()
	const slack = 30 * time.Second // for a slow machine: a call that ignores its timeout never returns
	s, p := openBehindProxy(t)
	fillPool(t, s).release()
	s.timeouts = quick
	p.Freeze() // the connections that are open now stay unusable afterwards
	p.Set(func(*proxy.Chunk) ([]byte, bool) { return nil, true })
	start := time.Now()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := s.CreateBatch(t.Context(), []plant.Record{record(100 + i)})
			if !errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("CreateBatch() = %v, want %v or %v", err, storage.ErrUnknown, storage.ErrUnavailable)
			}
		})
	}
	for range cap(s.otherSlots) { // so that every connection is in use
		wg.Go(func() {
			if _, err := s.Get(t.Context(), "main", 0); !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("Get() = %v, want %v", err, storage.ErrUnavailable)
			}
		})
	}
	wg.Wait()
	if d := time.Since(start); d > quick.Write+slack {
		t.Errorf("the calls took %v, want at most %v", d, quick.Write)
	}
	p.Set(nil)
	s.timeouts = patient
	storagetest.Create(t, s, record(200))
	start = time.Now()
	s.timeouts = quick
	s.Close()
	if d := time.Since(start); d > quick.Write+slack {
		t.Errorf("Close() took %v, want at most %v", d, quick.Write)
	}
}

type conns []*pgxpool.Conn

func (c conns) release() {
	for _, conn := range c {
		conn.Release()
	}
}

// fillPool opens as many connections as may be in use, and returns them.
func fillPool(t *testing.T, s *Storage) (all conns) {
	t.Helper()
	for range defaultConns {
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	return all
}

// The end of a read's context does not close its connection: the contexts of many requests may end at once,
// and each new connection is expensive.
func TestReadIsCancelled(t *testing.T) {
	t.Parallel()
	s := openStorage(t, pgtest.Database(t))
	storagetest.Create(t, s, record(1))
	other := beginTx(t, s.database(), "LOCK TABLE plants IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		_, err := s.Get(ctx, "main", 1)
		read <- err
	}()
	waitForLock(t, s.database())
	cancel()
	time.Sleep(200 * time.Millisecond) // usually enough for pgx to close the connection, if it did
	if err := other.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil {
		t.Errorf("Get() that started before its context ended = %v", err)
	}
}

// openBehindProxy opens a database through a proxy, with one connection that has been used. Idle connections
// are not pinged, so that the next request of a connection is that of the test. The URL ends with params.
func openBehindProxy(t *testing.T, params ...string) (*Storage, *proxy.Proxy) {
	t.Helper()
	server := pgtest.Shared(t)
	p := proxy.New(t, fmt.Sprint("127.0.0.1:", server.Port))
	address := server.Through(p.Address, pgtest.Name(server.Database(t)))
	s := openConfig(t, address+strings.Join(params, ""), func(config *pgxpool.Config) {
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	storagetest.Create(t, s, record(0))
	return s, p
}

// loseRequest closes the connection at the next request, which does not reach the server.
func loseRequest() proxy.Fault { return proxy.Once(proxy.Requests, proxy.Close(proxy.Requests)) }

// loseReply closes the connection at the next reply.
func loseReply() proxy.Fault { return proxy.Once(proxy.Replies, proxy.Close(proxy.Replies)) }

const readyForQueryLen = 6 // bytes of ReadyForQuery, the last message of a reply, which follows the commit
