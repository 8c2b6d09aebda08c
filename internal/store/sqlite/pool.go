package sqlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/store"
)

var errClosed = fmt.Errorf("%w: it was closed", store.ErrUnavailable)

// pool is a fixed number of connections that only read.
type pool struct {
	idle      chan *sqlite.Conn
	closed    chan struct{}
	closeOnce sync.Once
}

// openPool opens all connections at once: opening one later would block while the file system is frozen.
func openPool(path string, size int) (*pool, error) {
	p := &pool{idle: make(chan *sqlite.Conn, size), closed: make(chan struct{})}
	for range size {
		conn, err := openConn(path, "query_only(1)")
		if err != nil {
			p.close()
			return nil, translate(err)
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
		for row, err := range query(conn, text, args...) {
			if sqlite.ErrCode(err) == sqlite.ResultInterrupt {
				err = ctx.Err()
			}
			if !yield(row, translate(err)) {
				return
			}
		}
	}
}

// get waits for an idle connection. Until it is put back, the end of ctx interrupts what it runs, except in the
// microseconds in which a statement starts: SQLite drops an interrupt while none is running.
func (p *pool) get(ctx context.Context) (*sqlite.Conn, error) {
	select {
	case conn := <-p.idle:
		conn.SetInterrupt(ctx.Done())
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, errClosed
	}
}

func (p *pool) put(conn *sqlite.Conn) {
	conn.SetInterrupt(nil)
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
			err = errors.Join(err, conn.Close())
		default:
			return err
		}
	}
}
