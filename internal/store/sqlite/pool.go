package sqlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

var (
	errClosed   = fmt.Errorf("%w: it was closed", store.ErrUnavailable)
	errInFlight = errors.New("reads of the database are still in flight")
)

// closeTimeout is how long a close waits for reads in flight, which the service has ended before.
const closeTimeout = 5 * time.Second

// pool is a fixed number of connections that only read.
type pool struct {
	damage    *store.Damage
	size      int // connections that were opened
	idle      chan *sqlite.Conn
	closed    chan struct{}
	closeOnce sync.Once
}

// openPool opens all connections: opening one later would block while the file system is frozen. The pool must be
// closed after an error too.
func openPool(n int, damage *store.Damage, open func() (*sqlite.Conn, error)) (*pool, error) {
	p := &pool{damage: damage, idle: make(chan *sqlite.Conn, n), closed: make(chan struct{})}
	for ; p.size < n; p.size++ {
		conn, err := open()
		if err != nil {
			return p, translate(err)
		}
		p.idle <- conn
	}
	return p, nil
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
	case <-p.closed:
		return nil, errClosed
	default:
	}
	select {
	case conn := <-p.idle:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, errClosed
	}
}

func (p *pool) put(conn *sqlite.Conn) { p.idle <- conn }

// close refuses new reads, waits for those in flight, and closes the connections.
func (p *pool) close() (err error) {
	if p == nil {
		return nil
	}
	p.closeOnce.Do(func() { close(p.closed) })
	timeout := time.After(closeTimeout)
	for ; p.size > 0; p.size-- {
		select {
		case conn := <-p.idle:
			err = errors.Join(err, conn.Close())
		case <-timeout:
			return errInFlight
		}
	}
	return err
}
