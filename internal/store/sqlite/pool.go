package sqlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

var errClosed = fmt.Errorf("%w: it was closed", store.ErrUnavailable)

// pool is a fixed number of connections that only read.
type pool struct {
	damage    *store.Damage
	open      func() (*sqlite.Conn, error) // set by fill
	idle      chan *sqlite.Conn            // contains nil for a connection that could not be opened
	conns     atomic.Int32                 // connections that fill has added, nil ones included, and that are not closed
	closed    chan struct{}
	closeOnce sync.Once
	onClose   func() // called when idle has been emptied; may be nil
}

// newPool returns an empty pool.
func newPool(size int, damage *store.Damage) *pool {
	return &pool{damage: damage, idle: make(chan *sqlite.Conn, size), closed: make(chan struct{})}
}

// fill opens the connections of an empty pool, all of them at once: opening one later would block while the file
// system is frozen.
func (p *pool) fill(open func() (*sqlite.Conn, error)) (err error) {
	p.open = open
	for range cap(p.idle) {
		var conn *sqlite.Conn
		if err == nil {
			conn, err = open()
		}
		p.conns.Add(1)
		p.put(conn)
	}
	return translate(err)
}

// empty waits until no statement uses a connection, then closes all of them. If timeout ends first, it reports false
// and keeps them. After empty, reads wait until fill is called.
func (p *pool) empty(timeout <-chan time.Time) bool {
	conns := make([]*sqlite.Conn, 0, cap(p.idle))
	for len(conns) < cap(p.idle) {
		select {
		case conn := <-p.idle:
			conns = append(conns, conn)
		case <-timeout:
			for _, conn := range conns {
				p.put(conn)
			}
			return false
		}
	}
	for _, conn := range conns {
		closeConn(conn)
		p.conns.Add(-1)
	}
	return true
}

// query runs a statement on an idle connection and yields its rows. It stops when ctx ends.
func (p *pool) query(ctx context.Context, text string, args ...any) iter.Seq2[*sqlite.Stmt, error] {
	return func(yield func(*sqlite.Stmt, error) bool) {
		conn, err := p.get(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer p.put(conn)
		// Until the connection is put back, the end of ctx interrupts what it runs, except in the microseconds in which a
		// statement starts: SQLite drops an interrupt while none is running.
		conn.SetInterrupt(ctx.Done())
		defer conn.SetInterrupt(nil)
		for row, err := range query(conn, text, args...) {
			if sqlite.ErrCode(err) == sqlite.ResultInterrupt {
				err = ctx.Err()
			}
			if !yield(row, p.damage.Record(translate(err))) {
				return
			}
		}
	}
}

// get waits for an idle connection.
func (p *pool) get(ctx context.Context) (*sqlite.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case conn := <-p.idle:
		if conn == nil {
			var err error
			if conn, err = p.open(); err != nil {
				p.put(nil)
				return nil, translate(err)
			}
		}
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, errClosed
	}
}

func (p *pool) put(conn *sqlite.Conn) {
	p.idle <- conn
	select {
	case <-p.closed:
		p.closeIdle()
	default:
	}
}

// close closes the connections: the idle ones now, those in use when they are put back.
func (p *pool) close() error {
	p.closeOnce.Do(func() { close(p.closed) })
	return p.closeIdle()
}

func (p *pool) closeIdle() (err error) {
	for {
		select {
		case conn := <-p.idle:
			err = errors.Join(err, closeConn(conn))
			p.conns.Add(-1)
		default:
			if p.onClose != nil {
				p.onClose()
			}
			return err
		}
	}
}

// closeConn closes a connection that may be nil.
func closeConn(conn *sqlite.Conn) error {
	if conn == nil {
		return nil
	}
	return conn.Close()
}
