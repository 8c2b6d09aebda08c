package netlimit

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	get       = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	waitLimit = 30 * time.Second
)

// log collects messages.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(message string, attrs ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintln(append([]any{message}, attrs...)...))
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}

// testConfig refuses with "refused" and replaces net/http's responses by "error STATUS".
func testConfig(most int) (Config, *log) {
	messages := new(log)
	return Config{
		TLS: transport,
		Max: most, Setting: "--most", Log: messages.add,
		Refusal:       func() []byte { return []byte("refused") },
		ErrorResponse: func(status int, _ net.Addr) []byte { return fmt.Appendf(nil, "error %d", status) },
	}, messages
}

// serve runs a server of h on l until the test ends.
func serve(t *testing.T, l net.Listener, most int, h http.HandlerFunc) (*Listener, *log) {
	t.Helper()
	cfg, messages := testConfig(most)
	limited := New(l, cfg)
	s := &http.Server{Handler: h, ReadTimeout: time.Hour, WriteTimeout: time.Hour, MaxHeaderBytes: 1 << 10}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		limited.Serve(s)
	}()
	t.Cleanup(func() {
		s.Close()
		<-ended
		if _, ok := l.(*pipes); ok {
			time.Sleep(time.Hour) // of the controlled clock, until handlers and pauses of net/http end
		}
	})
	return limited, messages
}

// listenTCP is a listener of the system.
func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(waitLimit))
	if transport != nil {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	return c
}

// transport is TLS of the servers and clients of the tests; nil for none.
var transport *tls.Config

// pair is a tracked connection of the system and its client, without a server.
func pair(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	cfg, _ := testConfig(10)
	l := New(listenTCP(t), cfg)
	t.Cleanup(func() { l.Close() })
	return acceptFrom(t, l)
}

func acceptFrom(t *testing.T, l *Listener) (*conn, net.Conn) {
	t.Helper()
	client := dial(t, l)
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return accepted.(*conn), client
}

// pipes is a listener in memory, for tests with a controlled clock. It does not know files, as on systems where
// connections can't be refused.
type pipes struct {
	results chan any // net.Conn or error
	once    sync.Once
	closed  chan struct{}
}

func newPipes() *pipes { return &pipes{results: make(chan any, 1000), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case r := <-p.results:
		if err, ok := r.(error); ok {
			return nil, err
		}
		return r.(net.Conn), nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func newPipe() net.Conn {
	c, _ := net.Pipe()
	return c
}

// connect returns a client that waits to be accepted.
func (p *pipes) connect(t *testing.T) net.Conn {
	client, accepted := net.Pipe()
	t.Cleanup(func() { client.Close() })
	p.results <- accepted
	return client
}

// send writes a request and returns the status of the response, or 0 if the connection was closed without one.
func send(t *testing.T, c net.Conn, request string) int {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		return 0
	}
	return receive(t, c)
}

func receive(t *testing.T, c net.Conn) int {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// eventually waits until a condition is met.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, waitLimit)
		}
	}
}

// only returns the one open connection.
func only(t *testing.T, l *Listener) *conn {
	t.Helper()
	open := l.open()
	if len(open) != 1 {
		t.Fatalf("%d connections are open, want 1", len(open))
	}
	return open[0]
}
