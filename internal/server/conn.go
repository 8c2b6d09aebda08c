package server

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"plantstore/internal/httpapi"
)

// listener hands out connections that it keeps count of, for two things that the HTTP library does
// not do: a request that is half read when the service is told to stop is still answered, and
// what the library answers by itself is an Error like any other.
type listener struct {
	net.Listener
	mu       sync.Mutex
	conns    map[*conn]struct{}
	draining atomic.Bool
	empty    chan struct{} // closed when draining and no connection is left
}

type conn struct {
	net.Conn
	from *listener
	// half is true from the first byte of a request until its answer is written.
	half   atomic.Bool
	closed sync.Once
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, conns: map[*conn]struct{}{}, empty: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &conn{Conn: c, from: l}
	l.mu.Lock()
	l.conns[tracked] = struct{}{}
	l.mu.Unlock()
	return tracked, nil
}

// state is the server's ConnState hook.
func (l *listener) state(c net.Conn, s http.ConnState) {
	switch c := c.(*conn); s {
	case http.StateIdle:
		c.half.Store(false)
	case http.StateClosed, http.StateHijacked:
		c.end()
	}
}

// drain lets go of the connections that no request is on, and waits for the others until ctx
// ends. It reports how many had to be cut off.
func (l *listener) drain(ctx context.Context) int {
	l.mu.Lock()
	l.draining.Store(true)
	for c := range l.conns {
		if !c.half.Load() {
			go c.end()
		}
	}
	if len(l.conns) == 0 {
		l.ended()
	}
	l.mu.Unlock()
	select {
	case <-l.empty:
		return 0
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		go c.end()
	}
	return len(l.conns)
}

func (l *listener) ended() {
	select {
	case <-l.empty:
	default:
		close(l.empty)
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.half.Store(true)
	}
	return n, err
}

// Close is called by the library's Shutdown on what it takes for idle, though the first bytes of a
// request may be there: then the connection lives on until that request is answered.
// The library tells about every other end of a connection through state.
func (c *conn) Close() error {
	if c.from.draining.Load() && c.half.Load() {
		return nil
	}
	return c.end()
}

func (c *conn) end() (err error) {
	c.closed.Do(func() {
		err = c.Conn.Close()
		c.from.mu.Lock()
		defer c.from.mu.Unlock()
		delete(c.from.conns, c)
		if c.from.draining.Load() && len(c.from.conns) == 0 {
			c.from.ended()
		}
	})
	return err
}

// libraryHeaders ends the head of every answer that the HTTP library writes by itself.
const libraryHeaders = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

func (c *conn) Write(b []byte) (int, error) {
	if body, status, ok := libraryAnswer(b); ok {
		_, err := fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			status, http.StatusText(status), len(body), body)
		return len(b), err
	}
	return c.Conn.Write(b)
}

func libraryAnswer(b []byte) (body []byte, status int, ok bool) {
	const at = len("HTTP/1.1 ")
	if len(b) < at+3 || b[at] < '4' {
		return nil, 0, false
	}
	line, _, _ := bytes.Cut(b, []byte("\r\n"))
	if !bytes.HasPrefix(b[len(line):], []byte(libraryHeaders)) {
		return nil, 0, false
	}
	status, err := strconv.Atoi(string(b[at : at+3]))
	if err != nil {
		return nil, 0, false
	}
	body, ok = httpapi.LibraryFailure(status)
	return body, status, ok
}
