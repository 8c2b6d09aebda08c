package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/framing"
	"plantstore/internal/httpapi"
)

var errFraming = errors.New("the request can be read in two ways")

// linger is how long a connection that no request is on is kept after the signal to stop. Its client
// does not know yet, and may be sending: what comes is answered, and the answer says that it is the last.
const linger = time.Second

// listener hands out connections that it keeps count of, for three things that the HTTP library does
// not do: a request that comes or is half read when the service is told to stop is still answered (the
// library's Shutdown drops it), a request that could be read in two ways is refused, and what the
// library answers by itself is an Error like any other.
type listener struct {
	net.Listener
	log      func(message string, attrs ...any) // of requests that only the library has seen
	draining atomic.Bool
	lingered atomic.Bool // a connection that no request is on has had its time
	crowd

	begun   sync.Once
	arrived chan *conn // closed when deaf

	mu      sync.Mutex
	conns   map[*conn]struct{}
	deaf    bool          // the last connection has been accepted
	failure error         // why
	empty   chan struct{} // closed when deaf and no connection is left
}

type conn struct {
	net.Conn
	from *listener
	half atomic.Bool // from the first byte of a request until its answer is written
	busy atomic.Bool // while a handler has the request

	framing framing.Checker // of what is read

	since   atomic.Int64 // when it was accepted, or idle, or a request began to arrive; in ns since 1970
	asked   atomic.Bool  // something has been sent on it
	gone    atomic.Bool  // it gives way to another: nothing more is read
	reading atomic.Bool  // while a handler waits for more of the body
	share   *share       // of the token that the last request had; guarded by the listener's mu where others look

	readBy, writeBy atomic.Int64 // deadlines that are armed, in ns since 1970; 0 for none

	once sync.Once
}

// newListener hands out at most most connections at once.
func newListener(l net.Listener, most int, log func(string, ...any)) *listener {
	return &listener{Listener: l, log: log, conns: map[*conn]struct{}{}, arrived: make(chan *conn, most), empty: make(chan struct{}), crowd: newCrowd(most)}
}

func (l *listener) Accept() (net.Conn, error) {
	l.begun.Do(func() { go l.acceptAll() })
	if c, ok := <-l.arrived; ok {
		return c, nil
	}
	return nil, l.failure
}

// state is the server's ConnState hook.
func (l *listener) state(nc net.Conn, s http.ConnState) {
	switch c := nc.(*conn); s {
	case http.StateActive:
		c.busy.Store(true)
		c.half.Store(true) // also where it was read together with the request before
	case http.StateIdle:
		c.busy.Store(false)
		c.half.Store(c.framing.InRequest())
		c.awaits(time.Now())
		// In a crowd, who has shown no token has one answer.
		if l.lingered.Load() || c.share == nil && l.crowded.Load() != 0 && l.isFull() {
			c.Close()
		}
	}
}

// drain takes no more connections, ends those that no request comes on for a while, and waits for the
// others until ctx ends. It returns how many requests were cut off then.
func (l *listener) drain(ctx context.Context) (cut int) {
	l.draining.Store(true)
	l.Close()
	select {
	case <-l.empty:
		return 0
	case <-time.After(linger):
		l.lingered.Store(true)
		for _, c := range l.open() {
			if !c.half.Load() && silent(c.Conn) { // what has come, and we are late to read, is answered too
				c.Close()
			}
		}
	case <-ctx.Done():
	}
	select {
	case <-l.empty:
		return 0
	case <-ctx.Done():
	}
	for _, c := range l.open() {
		if c.half.Load() {
			cut++
		}
		c.Close()
	}
	return cut
}

func (l *listener) open() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}

// signal tells drain when the last connection is gone. The caller holds mu.
func (l *listener) signal() {
	if l.deaf && len(l.conns) == 0 {
		select {
		case <-l.empty:
		default:
			close(l.empty)
		}
	}
}

// Read also serves the library's look-out for clients that go away: while a handler runs, it reads one
// byte in the background. Nothing here wants to know, since a batch goes on without its caller, and
// where handlers wait the look-out costs a create a tenth of its time: a system call, a goroutine that
// is parked, a wake-up. So it ends at once, with no byte and no error: nothing has happened.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 1 && c.busy.Load() {
		return 0, nil
	}
	if c.framing.Broken() {
		return 0, errFraming
	}
	if c.busy.Load() {
		c.reading.Store(true)
		defer c.reading.Store(false)
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		return 0, err
	}
	if !c.half.Load() {
		c.awaits(time.Now()) // before it looks as if this had been arriving for long
		c.half.Store(true)
		c.asked.Store(true)
	}
	if c.gone.Load() {
		return 0, net.ErrClosed
	}
	if n = c.framing.Check(b[:n]); n == 0 {
		return 0, errFraming
	}
	return n, err
}

// CloseWrite lets the library end a connection in order: what was answered is read before the reset.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetReadDeadline and SetWriteDeadline keep time-outs to the second. The library sets five deadlines for
// a request, each of them nearly the same as the last; arming a timer for each costs more than reading
// the request. One that is at most a second later than what is armed is left as it is. None is taken away
// while a handler has the request, when nothing is read, nor between requests, when nothing is written.
func (c *conn) SetReadDeadline(t time.Time) error {
	if t.IsZero() && c.busy.Load() || near(&c.readBy, t) {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if t.IsZero() || near(&c.writeBy, t) {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// near reports whether a deadline is at most a second later than the one that is armed, and
// otherwise notes it as armed.
func near(armed *atomic.Int64, t time.Time) bool {
	at := int64(0)
	if !t.IsZero() {
		at = t.UnixNano()
	}
	was := armed.Load()
	if later := at - was; was > 0 && later >= 0 && later < int64(time.Second) {
		return true
	}
	armed.Store(at)
	return false
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.from.mu.Lock()
		defer c.from.mu.Unlock()
		delete(c.from.conns, c)
		c.from.left(c)
		c.from.signal()
	})
	return c.Conn.Close()
}

// libraryHeaders ends the head of what the HTTP library writes by itself when it can't read a
// request; expectationFailed begins what it writes to an Expect that it does not know.
const expectationFailed = "HTTP/1.1 417 Expectation Failed\r\n" // no JSON has a line end in it
const libraryHeaders = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

func (c *conn) Write(b []byte) (int, error) {
	f, body, ok := libraryAnswer(b)
	if !ok {
		return c.Conn.Write(b)
	}
	id := httpapi.NewRequestID()
	c.from.log("request", "id", id, "route", "unmatched", "status", f.Status(), "error", f.Number, "from", c.RemoteAddr().String(), "reason", f.Meaning)
	_, err := fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %s\r\nConnection: close\r\n\r\n%s",
		f.Status(), http.StatusText(f.Status()), len(body), id, body)
	return len(b), err
}

func libraryAnswer(b []byte) (f httpapi.Failure, body []byte, ok bool) {
	const at = len("HTTP/1.1 ")
	if len(b) < at+3 || b[at] < '4' {
		return f, nil, false
	}
	line, _, _ := bytes.Cut(b, []byte("\r\n"))
	if !bytes.HasPrefix(b[len(line):], []byte(libraryHeaders)) && !bytes.HasPrefix(b, []byte(expectationFailed)) {
		return f, nil, false
	}
	status, err := strconv.Atoi(string(b[at : at+3]))
	if err != nil {
		return f, nil, false
	}
	return httpapi.LibraryFailure(status)
}
