package sqlite

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore/internal/storage"
)

var (
	errClosed   = fmt.Errorf("%w: it was closed", storage.ErrUnavailable)
	errInFlight = errors.New("reads of the database are still in flight")
)

// closeTimeout is how long a close waits for reads in flight, which the service has ended before.
const closeTimeout = 5 * time.Second

// pool is a fixed number of connections that only read.
type pool struct {
	damage *storage.Damage
	size   int // connections that are open
	idle   chan *sqlite.Conn
	closed context.Context
	refuse context.CancelFunc // ends closed
}

// openPool opens all connections: opening one later would block while the file system is frozen. The pool must be
// closed after an error too.
func openPool(n int, damage *storage.Damage, target string, open opener) (*pool, error) {
	p := &pool{damage: damage, idle: make(chan *sqlite.Conn, n)}
	p.closed, p.refuse = context.WithCancel(context.Background())
	for ; p.size < n; p.size++ {
		conn, err := open(target)
		if err != nil {
			return p, translate(err)
		}
		p.idle <- conn
	}
	return p, nil
}

// rows runs a query on an idle connection and yields its rows. It stops when ctx ends.
func (p *pool) rows(ctx context.Context, text string, args ...any) iter.Seq2[*sqlite.Stmt, error] {
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

func (p *pool) get(ctx context.Context) (*sqlite.Conn, error) {
	select {
	case conn := <-p.idle:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed.Done():
		return nil, errClosed
	}
}

func (p *pool) put(conn *sqlite.Conn) { p.idle <- conn }

// close refuses new reads, waits for those in flight, and closes the connections.
func (p *pool) close() (err error) {
	if p == nil {
		return nil
	}
	p.refuse()
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
