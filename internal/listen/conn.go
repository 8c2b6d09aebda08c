package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

var errFraming = errors.New("ambiguous HTTP framing")

// conn is an open connection. The goroutine that serves it owns all fields, except where a comment says otherwise.
// net/http's background read, in another goroutine, uses checker; net/http lets only one of the two read at a time.
type conn struct {
	net.Conn             // the socket, or TLS on it
	socket   net.Conn    // other goroutines close it: closing TLS can wait for the client
	address  *address    // that it counts for; nil if it is exempt
	closing  atomic.Bool // it is marked: its next response is the last; set with Listener.mu held
	state    atomicState
	listener *Listener
	index    int    // in Listener.conns, or -1; guarded by Listener.mu
	owner    *owner // of the last request; changed by the connection's goroutine, with Listener.mu held

	checker    framing
	inHead     bool          // net/http reads the head of a request
	handling   bool          // a handler was called for the request, and the next request was not begun
	waitsSince time.Duration // when it began to wait for the rest of a request, or 0
	slow       bool          // checker.slow after the last Read; a background read may change that one
	received   bool          // any byte was
	secured    bool          // the TLS handshake is made
	notTLS     bool          // the client does not use TLS, although it must
	replaced   bool          // a response of net/http was replaced, the last of the connection

	readDeadline, writeDeadline deadline
}

// kind is what a connection waits for.
type kind uint8

const (
	idle      kind = iota // a request; also the TLS handshake
	receiving             // the rest of a request
	writing               // the client, to read a response
	working               // the service
	gone                  // nothing: it was closed in favour of another, and nothing is read or written any more
)

// state is the kind of wait in the low bits, and in the others when it began. One word holds both, so that a connection
// is closed only for the wait that was judged.
type state int64

const kindBits = 3

func newState(k kind, since time.Duration) state { return state(since)<<kindBits | state(k) }

func (s state) kind() kind           { return kind(s & (1<<kindBits - 1)) }
func (s state) since() time.Duration { return time.Duration(s >> kindBits) }

// atomicState is a state that other goroutines read, and change to gone.
type atomicState struct{ word atomic.Int64 }

func (a *atomicState) Load() state { return state(a.word.Load()) }

func (a *atomicState) CompareAndSwap(before, after state) bool {
	return a.word.CompareAndSwap(int64(before), int64(after))
}

// enter begins to wait. It reports false if the connection is gone.
func (c *conn) enter(k kind, since time.Duration) bool {
	for {
		before := c.state.Load()
		if before.kind() == gone {
			return false
		}
		if c.state.CompareAndSwap(before, newState(k, since)) {
			return true
		}
	}
}

// work ends a wait. Its time stays: the request in flight is about as old.
func (c *conn) work() bool { return c.enter(working, c.state.Load().since()) }

type connKey struct{}

// connOf returns the connection of the request with this context.
func connOf(ctx context.Context) *conn { return ctx.Value(connKey{}).(*conn) }

// Read reads what net/http is to parse.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 1 && !c.inHead {
		return c.readInBackground(b)
	}
	if c.checker.broken {
		return 0, errFraming
	}
	c.inHead = !c.handling
	now, wait := c.listener.now(), idle
	if c.checker.inRequest() {
		if wait = receiving; c.waitsSince == 0 {
			c.waitsSince = now
		}
		now = c.waitsSince
	}
	if !c.enter(wait, now) {
		return 0, net.ErrClosed
	}
	if c.readDeadline.due() {
		c.Conn.SetReadDeadline(c.readDeadline.set)
	}
	if err := c.handshake(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if !c.work() {
		return 0, net.ErrClosed
	}
	c.received = c.received || n > 0
	if n == 0 && err != nil && c.closing.Load() {
		return 0, c.end()
	}
	passed := c.checker.check(b[:n])
	c.slow = c.checker.slow
	if passed > 0 || n == 0 {
		return passed, err
	}
	return 0, errFraming
}

// readInBackground serves net/http's background read: while a handler runs, net/http reads one byte to notice that
// the client disconnects. That is of use for a request that may take long, a GET with a query or any request with a
// preference, such as a count. Any other is completed whether or not its client is there, and the read would be a good
// part of its cost. So it ends at once, with no byte and no error, and net/http takes that for nothing.
func (c *conn) readInBackground(b []byte) (int, error) {
	if !c.slow || c.checker.broken || c.closing.Load() {
		return 0, nil
	}
	n, err := c.Conn.Read(b)
	if n == 0 && c.closing.Load() { // The client is still there: our side closed the receiving side.
		return 0, nil
	}
	if n > 0 && c.checker.check(b) == 0 {
		return 0, nil // The next Read reports it: it is no part of the request that is handled.
	}
	return n, err
}

// end ends a connection that is evicted before its client has sent a whole request. A client that has sent nothing gets
// a refusal. Any other client could take a refusal for the response to an earlier request. net/http would respond with
// 400 to a part of a request.
func (c *conn) end() error {
	if l := c.listener; !c.received && l.cfg.TLS == nil && !l.draining.Load() {
		c.socket.Write(l.cfg.Refusal()) // it never waits: nothing was written before
	}
	c.enter(gone, 0)
	return io.EOF
}

const (
	writeSize = 64 << 10 // bytes that are written at once, so that the state has the time of the last progress
	maxUnsent = 64 << 10 // send buffer while connections are scarce, without a token; Linux doubles it
)

// Write writes a response.
func (c *conn) Write(b []byte) (n int, err error) {
	if c.writeDeadline.due() {
		c.Conn.SetWriteDeadline(c.writeDeadline.set)
	}
	if !c.handling {
		return c.writeOwn(b)
	}
	if tcp, ok := c.socket.(*net.TCPConn); ok && c.isPressed() {
		tcp.SetWriteBuffer(maxUnsent)
	}
	for err == nil && n < len(b) {
		if !c.enter(writing, c.listener.now()) {
			return n, net.ErrClosed
		}
		var written int
		written, err = c.Conn.Write(b[n:min(n+writeSize, len(b))])
		n += written
		c.work()
	}
	return n, err
}

// writeOwn replaces a response that net/http sends by itself, without a handler: it has no hook for these.
func (c *conn) writeOwn(b []byte) (int, error) {
	if c.replaced {
		return len(b), nil
	}
	if !c.enter(writing, c.listener.now()) {
		return 0, net.ErrClosed
	}
	const code = len("HTTP/1.1 ")
	status, _ := strconv.Atoi(string(b[min(code, len(b)):min(code+3, len(b))]))
	if c.notTLS {
		status = http.StatusUpgradeRequired
	}
	response := b
	if own := c.listener.cfg.ErrorResponse(status, c.RemoteAddr()); own != nil {
		response, c.replaced = own, true
	}
	_, err := c.output().Write(response)
	return len(b), err
}

// CloseWrite lets net/http send the last response before it closes a connection that has unread bytes. net/http then
// waits for a moment, in which the connection may be closed in favour of another.
func (c *conn) CloseWrite() error {
	if !c.enter(writing, c.listener.now()) {
		return c.Close()
	}
	return closeWrite(c.output())
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetReadDeadline sets a deadline that may end a Read at once, and leaves any other to the next Read. The background
// read of a slow request needs each at once. While a handler runs, no other Read waits.
func (c *conn) SetReadDeadline(t time.Time) error {
	switch {
	case c.slow:
		c.readDeadline = deadline{t, t}
		return c.Conn.SetReadDeadline(t)
	case c.handling:
		c.readDeadline.wanted = t
	case c.readDeadline.want(t):
		return c.Conn.SetReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline is to Write what SetReadDeadline is to Read.
func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.writeDeadline.want(t) {
		return c.Conn.SetWriteDeadline(t)
	}
	return nil
}

// deadline is a deadline that net/http wants, and the deadline that is set. net/http changes both of its deadlines
// several times in a request, and setting one costs a timer. So the wanted deadline is set when the next wait begins,
// unless the set one is less than a second earlier.
type deadline struct{ wanted, set time.Time }

// want records a deadline, and reports whether it must be set at once: it is earlier than the one that is set.
func (d *deadline) want(t time.Time) bool {
	d.wanted = t
	return !t.IsZero() && (d.set.IsZero() || t.Before(d.set)) && d.due()
}

// due reports whether the deadline that is wanted must be set before a wait, and takes it for set then.
func (d *deadline) due() bool {
	later := d.wanted.Sub(d.set)
	if d.wanted.IsZero() == d.set.IsZero() && later >= 0 && later < time.Second {
		return false
	}
	d.set = d.wanted
	return true
}

// Close closes the connection. With TLS, it may wait for the client to receive what was sent.
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
