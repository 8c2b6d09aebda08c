package listen

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	get       = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	halfBody  = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx"
	waitLimit = 30 * time.Second
)

// log collects messages.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) add(message string, attrs ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(&l.text, append([]any{message}, attrs...)...)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// testConfig refuses with status 503 and replaces net/http's responses by "error STATUS".
func testConfig(most int) (Config, *log) {
	messages := new(log)
	return Config{
		Max: most, Setting: "--most", Log: messages.add,
		Refusal:       func() []byte { return []byte("HTTP/1.1 503 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n") },
		ErrorResponse: func(status int, _ net.Addr) []byte { return fmt.Appendf(nil, "error %d", status) },
	}, messages
}

// client dials a server that runs until the test ends.
type client struct {
	*testing.T
	*Listener
	log *log
}

// serve runs a server of h. change may be nil.
func serve(t *testing.T, most int, change func(*Config), h http.HandlerFunc) client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, most, change, h)
}

func serveOn(t *testing.T, l net.Listener, most int, change func(*Config), h http.HandlerFunc) client {
	cfg, messages := testConfig(most)
	if change != nil {
		change(&cfg)
	}
	c := client{t, New(l, cfg), messages}
	s := &http.Server{Handler: h, ReadTimeout: time.Hour, WriteTimeout: 24 * time.Hour, MaxHeaderBytes: 1 << 10}
	var ended sync.WaitGroup
	ended.Go(func() { c.Serve(s) })
	t.Cleanup(func() {
		s.Close()
		ended.Wait()
	})
	return c
}

// withTLS is a change of serve.
func withTLS(cfg *Config) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	cfg.TLS = &tls.Config{Certificates: s.TLS.Certificates}
}

// dial connects from a loopback address.
func (c client) dial(from string) net.Conn {
	c.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", c.Addr().String())
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(waitLimit))
	return conn
}

// dialMany connects and sends something on each connection, and waits until all are admitted.
func (c client) dialMany(n int, from, sent string) (all []net.Conn) {
	c.Helper()
	before := c.open()
	for range n {
		conn := c.dial(from)
		io.WriteString(conn, sent)
		all = append(all, conn)
	}
	c.wait("connections", func() bool { return c.open() == before+n })
	return all
}

func (c client) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// wait waits until a condition is met.
func (c client) wait(what string, met func() bool) {
	c.Helper()
	for deadline := time.Now().Add(waitLimit); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatalf("%s: not within %v; states %v", what, waitLimit, c.Stats())
		}
	}
}

// waitState waits until a number of connections are in a state.
func (c client) waitState(name string, n int64) {
	c.Helper()
	c.wait(fmt.Sprintf("%d connections in the state %s", n, name), func() bool { return c.Stats().Open[name] == n })
}

// send writes a request and returns the status of the response, or 0 if the connection was closed without one.
func send(c net.Conn, request string) int {
	if _, err := io.WriteString(c, request); err != nil {
		return 0
	}
	return receive(c)
}

func receive(c net.Conn) int {
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// pipes is a listener in memory, for tests with a controlled clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	defer func() { recover() }() // it was closed before
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// connect returns the other end of a connection that waits to be accepted.
func (p pipes) connect(t *testing.T) net.Conn {
	client, accepted := net.Pipe()
	t.Cleanup(func() { client.Close() })
	p <- pipe{accepted}
	return client
}

type pipe struct{ net.Conn }

func (p pipe) CloseRead() error { return p.SetReadDeadline(time.Unix(1, 0)) }
