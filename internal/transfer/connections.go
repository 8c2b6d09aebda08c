package transfer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Connections is an http.RoundTripper for an import from the same machine, from which every µs is taken from the
// service. It takes less than half of the processor time of an http.Transport, because a request needs no other
// goroutine. It supports neither TLS nor proxies, and has no limit: the caller limits the requests in flight. A request
// that was sent does not end with its context, but after requestTimeout.
type Connections struct {
	mu   sync.Mutex
	idle []*connection
}

type connection struct {
	net.Conn
	*bufio.ReadWriter
}

const (
	maxResponse    = 1 << 20
	requestTimeout = 30 * time.Second
)

// RoundTrip sends a request and reads the whole response.
func (t *Connections) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := t.get(r)
	if err != nil {
		return nil, err
	}
	resp, err := c.exchange(r)
	if err != nil || resp.Close {
		c.Close()
		return resp, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, c)
	return resp, nil
}

// get returns the connection that was used last, or a new one.
func (t *Connections) get(r *http.Request) (*connection, error) {
	t.mu.Lock()
	if n := len(t.idle); n > 0 {
		defer t.mu.Unlock()
		c := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return c, nil
	}
	t.mu.Unlock()
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	c, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))}, nil
}

func (c *connection) exchange(r *http.Request) (*http.Response, error) {
	c.SetDeadline(time.Now().Add(requestTimeout))
	fmt.Fprintf(c.Writer, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", r.Method, r.URL.RequestURI(), r.Host,
		r.ContentLength)
	for name, values := range r.Header {
		c.WriteString(name + ": " + values[0] + "\r\n")
	}
	c.WriteString("\r\n")
	io.Copy(c.Writer, r.Body)
	writeErr := c.Flush() // also returns an earlier error
	if writeErr != nil {
		if _, err := c.Peek(1); err != nil { // a service that refuses a large body responds before it has read all of it
			return nil, writeErr
		}
	} else if body, ok := c.readPlain(); ok {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, nil
	}
	resp, err := http.ReadResponse(c.Reader, r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	resp.Body, resp.Close = io.NopCloser(bytes.NewReader(body)), resp.Close || len(body) == maxResponse || writeErr != nil
	return resp, err
}

// readPlain reads a response that needs no general parser: 200 with a length, on a connection that stays open. It takes
// nothing otherwise.
func (c *connection) readPlain() (body []byte, ok bool) {
	c.Peek(1) // waits for the response
	text, _ := c.Peek(c.Reader.Buffered())
	head, rest, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	length := -1
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		switch name, value, _ := bytes.Cut(line, []byte(": ")); string(name) {
		case "Content-Length":
			length, _ = strconv.Atoi(string(value))
		case "Connection", "Transfer-Encoding":
			return nil, false
		}
	}
	if length < 0 || length > len(rest) || !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		return nil, false
	}
	body = bytes.Clone(rest[:length])
	c.Discard(len(head) + 4 + length)
	return body, true
}
