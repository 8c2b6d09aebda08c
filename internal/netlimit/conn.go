package netlimit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/framing"
)

var errFraming = errors.New("ambiguous HTTP framing")

// conn is an open connection. The goroutine of http.Server that serves it reads and writes it. Two other goroutines may
// at the same time: one that evicts it writes a refusal and closes it, and net/http's background read calls Read.
type conn struct {
	net.Conn          // the socket, or TLS on it
	socket   net.Conn // other goroutines use it: closing TLS can wait for the client
	listener *Listener
	state    atomic.Int64
	checker  framing.Checker
	address  netip.Addr  // the address or network that it counts for; the zero value if it is exempt
	owner    *owner      // of the last request; changed by the connection's goroutine, with listener.mu held
	closing  atomic.Bool // it is marked: it has no slot, and its next response is the last; set with listener.mu held

	readDeadline, writeDeadline deadline
	responseBy                  time.Time // the last write deadline of net/http

	notTLS bool // the client does not use TLS, although it must

	closeOnce sync.Once
}

func (c *conn) phase() phase { return state(c.state.Load()).phase() }

// move enters a phase whose wait for the client starts at since. If since is zero, the wait of the previous phase
// continues. move reports false if the connection was evicted.
func (c *conn) move(to phase, since time.Time) bool {
	for {
		before := state(c.state.Load())
		at := before.since()
		if !since.IsZero() {
			at = since.Sub(c.listener.start)
		}
		if before.phase() == evicted {
			return false
		}
		if c.state.CompareAndSwap(int64(before), int64(newState(to, at))) {
			return true
		}
	}
}

// evict closes a connection that is in the given state. It reports false if the state has changed or, unless force is
// set, if the client has sent bytes that were not read yet. While a response is written, unread bytes do not count:
// otherwise a client that sends requests ahead and reads no response would never be evicted. A client that has sent
// nothing gets a refusal; any other might take a refusal for the response to a request that is being handled.
func (c *conn) evict(was state, force bool) bool {
	if !force && was.phase() != writing {
		if unread, _ := peek(c.socket); unread {
			return false
		}
	}
	if !c.state.CompareAndSwap(int64(was), int64(newState(evicted, 0))) {
		return false
	}
	switch {
	case was.phase() == fresh && c.listener.cfg.TLS == nil:
		c.socket.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)) // it never waits: nothing was written before
		c.socket.Write(c.listener.cfg.Refusal())
	case was.phase() == writing:
		if tcp, ok := c.socket.(*net.TCPConn); ok {
			tcp.SetLinger(0) // the kernel discards what the client has not read
		}
	}
	c.abort()
	return true
}

type connKey struct{}

func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of the request with this context.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// whileHandling calls h and keeps the phase of the connection. A request on an evicted connection is dropped.
func whileHandling(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !connOf(r.Context()).move(handling, time.Time{}) {
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	})
}

// connState is the hook of http.Server.
func (l *Listener) connState(nc net.Conn, s http.ConnState) {
	switch c := nc.(*conn); s {
	case http.StateActive:
		c.move(parsed, time.Time{})
	case http.StateIdle:
		next, now := idle, time.Now()
		if c.checker.InRequest() {
			next = receiving
		}
		c.move(next, now)
		l.pollInOverload(now)
		overload := c.owner.isAnonymous() && (c.closing.Load() || l.overloaded.isSet())
		if overload {
			l.counters.evicted[afterResponse].Add(1)
		}
		if overload || l.closeIdle.Load() {
			c.Close()
		}
	}
}

// Read also serves net/http's background read: while a handler runs, it reads one byte to detect a disconnect. That
// read ends at once, with no byte and no error, which net/http takes for nothing. A batch is committed whether or not
// its clients are still connected, and the background read would cost 4.8 µs for each request, 12 % of the CPU time of
// a create: a system call, a goroutine that is parked, a wake-up. CancelOnDisconnect is for handlers that want to know.
func (c *conn) Read(b []byte) (int, error) {
	before := c.phase()
	if len(b) == 1 && (before == parsed || before == handling || before == writing) {
		return 0, nil
	}
	if c.checker.Broken() {
		return 0, errFraming
	}
	if before == fresh {
		if err := c.handshake(); err != nil {
			return 0, err
		}
	}
	if before == handling {
		c.move(receivingBody, time.Time{})
		defer c.move(handling, time.Time{})
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	if before == fresh || before == idle {
		now := time.Now()
		c.move(receiving, now)
		c.listener.pollInOverload(now)
	}
	if c.phase() == evicted {
		return 0, net.ErrClosed
	}
	if n = c.checker.Check(b[:n]); n == 0 {
		return 0, errFraming
	}
	return n, err
}

// Write replaces what net/http writes by itself: everything that is not written for a handler. net/http has no hook
// for its own responses. The check costs nothing measurable. Nothing is written after an eviction: net/http takes the
// read that failed for a malformed request, and its client would get a 400 for a request that is not.
func (c *conn) Write(b []byte) (int, error) {
	switch c.phase() {
	case evicted:
		return 0, net.ErrClosed
	case handling, receivingBody:
		return c.writeResponse(b)
	}
	const code = len("HTTP/1.1 ")
	status, err := strconv.Atoi(string(b[min(code, len(b)):min(code+3, len(b))]))
	if err != nil {
		return c.output().Write(b)
	}
	if c.notTLS {
		status = http.StatusUpgradeRequired
	}
	response := c.listener.cfg.ErrorResponse(status, c.RemoteAddr())
	if response == nil {
		return c.output().Write(b)
	}
	_, err = c.output().Write(response)
	return len(b), err
}

const (
	writeSize = 64 << 10 // bytes that are written at once

	// A client without a token may take writeProgress to read writeSize bytes, and the kernel buffers at most maxUnsent
	// bytes that can't be sent yet.
	writeProgress = 10 * time.Second
	maxUnsent     = 64 << 10
)

// writeResponse writes what a handler has written, in parts, so that the state records the time of the last progress.
func (c *conn) writeResponse(b []byte) (n int, err error) {
	before := c.phase()
	for {
		now := time.Now()
		if !c.move(writing, now) {
			return n, net.ErrClosed
		}
		if limit := now.Add(writeProgress); c.owner.isAnonymous() && limit.Before(c.responseBy) {
			c.setWriteDeadline(limit)
		}
		written, err := c.Conn.Write(b[n:min(n+writeSize, len(b))])
		n += written
		if err != nil || n == len(b) {
			c.move(before, time.Time{})
			return n, err
		}
	}
}

// CloseWrite lets net/http send the last response before it closes a connection that has unread bytes. net/http then
// waits for half a second, during which the connection may be evicted.
func (c *conn) CloseWrite() error {
	c.move(writing, time.Now())
	if half, ok := c.output().(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetReadDeadline and SetWriteDeadline keep timeouts to the second. net/http sets and removes five deadlines for a
// request, which costs 2 µs, 5 % of the CPU time of a create. Here one that is less than a second later than the
// current one is not set, and none is removed: net/http sets another one before the next read or write, since the
// server has all timeouts.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.readDeadline.covers(t) {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline is described at SetReadDeadline.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.responseBy = t
	return c.setWriteDeadline(t)
}

func (c *conn) setWriteDeadline(t time.Time) error {
	if c.writeDeadline.covers(t) {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// deadline is the one that is set, in ns since 1970.
type deadline int64

// covers reports whether t need not be set, and otherwise records it.
func (d *deadline) covers(t time.Time) bool {
	if later := t.UnixNano() - int64(*d); t.IsZero() || later >= 0 && later < int64(time.Second) {
		return true
	}
	*d = deadline(t.UnixNano())
	return false
}

// Close closes the connection and frees its slot. With TLS, it may wait for the client to receive what was sent.
func (c *conn) Close() error {
	c.closeOnce.Do(func() { c.listener.untrack(c) })
	return c.Conn.Close()
}

// abort is Close without waiting for the client.
func (c *conn) abort() {
	c.closeOnce.Do(func() { c.listener.untrack(c) })
	c.socket.Close()
}
