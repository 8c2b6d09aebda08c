package netlimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Every response that a real net/http sends by itself is replaced, and none that a handler wrote.
func TestErrorResponses(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct{ sent, want, wantAfter string }{
		"not HTTP":           {"nonsense\r\n\r\n", "error 400", ""},
		"no host":            {"GET / HTTP/1.1\r\n\r\n", "error 400", ""},
		"a long header":      {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 8<<10) + "\r\n\r\n", "error 431", ""},
		"a transfer coding":  {"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n", "error 501", ""},
		"a version":          {"GET / HTTP/9.9\r\nHost: x\r\n\r\n", "error 505", ""},
		"an expectation":     {"GET / HTTP/1.1\r\nHost: x\r\nExpect: x\r\n\r\n", "error 417", ""},
		"ambiguous framing":  {"GET / HTTP/1.1\r\nHost: x\r\n folded: x\r\n\r\n", "error 400", ""},
		"after a request":    {get + "nonsense\r\n\r\n", ok, "error 400"},
		"after two requests": {get + get + "nonsense\r\n\r\n", ok, "error 400"},
		"a handler's own 400": {"GET /400 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
			"HTTP/1.1 400 Bad Request", "400"},
		"100 Continue": {"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n" +
			"Content-Length: 1\r\n\r\nx", "HTTP/1.1 100 Continue\r\n\r\n" + ok, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := serve(t, listenTCP(t), 10, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if r.URL.Path == "/400" {
					http.Error(w, "400", 400)
				}
			})
			client := dial(t, l)
			io.WriteString(client, c.sent)
			text, err := io.ReadAll(client)
			if err != nil || !strings.HasPrefix(string(text), c.want) ||
				!strings.HasSuffix(strings.TrimSpace(string(text)), c.wantAfter) {
				t.Errorf("got %q, %v, want %q … %q", text, err, c.want, c.wantAfter)
			}
			if strings.HasPrefix(c.want, "error") && string(text) != c.want {
				t.Errorf("got %q, want only %q", text, c.want)
			}
		})
	}
}

// Nothing is read after ambiguous framing, and what was read before it is passed on.
func TestReadStopsAtAmbiguousFraming(t *testing.T) {
	c, client := pair(t)
	io.WriteString(client, get+"GET / HTTP/1.1\n\n")
	b := make([]byte, 100)
	if n, err := c.Read(b); string(b[:n]) != get || err != nil {
		t.Errorf("Read() = %q, %v", b[:n], err)
	}
	for range 2 {
		if n, err := c.Read(b); n != 0 || err != errFraming {
			t.Errorf("Read() = %d, %v", n, err)
		}
	}
	c, client = pair(t)
	io.WriteString(client, "\n")
	if n, err := c.Read(b); n != 0 || err != errFraming {
		t.Errorf("Read() of a wrong first byte = %d, %v", n, err)
	}
}

// The response of net/http is sent where there is no other, and the hook gets the address of the client.
func TestErrorResponseIsOptional(t *testing.T) {
	cfg, _ := testConfig(1)
	addresses := make(chan net.Addr, 1)
	cfg.ErrorResponse = func(_ int, client net.Addr) []byte {
		addresses <- client
		return nil
	}
	l := New(listenTCP(t), cfg)
	s := &http.Server{Handler: http.NotFoundHandler()}
	defer s.Close()
	go l.Serve(s)
	client := dial(t, l)
	if status := send(t, client, "nonsense\r\n\r\n"); status != 400 {
		t.Errorf("status %d, want that of net/http", status)
	}
	if got := <-addresses; got.String() != client.LocalAddr().String() {
		t.Errorf("the client is %v, want %v", got, client.LocalAddr())
	}
}

// While a handler runs, a real net/http finds neither the next request nor a disconnect, and what was sent during
// that time is the next request.
func TestBackgroundRead(t *testing.T) {
	started, proceed := make(chan context.Context), make(chan struct{})
	l, _ := serve(t, listenTCP(t), 10, func(_ http.ResponseWriter, r *http.Request) {
		started <- r.Context()
		<-proceed
	})
	client := dial(t, l)
	responses := bufio.NewReader(client)
	for range 3 {
		io.WriteString(client, get)
		<-started
		io.WriteString(client, get) // while the first is handled
		proceed <- struct{}{}
		<-started
		proceed <- struct{}{}
		for range 2 {
			response, err := http.ReadResponse(responses, nil)
			if err != nil || response.StatusCode != 200 {
				t.Fatalf("got %v, %v", response, err)
			}
			io.Copy(io.Discard, response.Body)
		}
	}
	io.WriteString(client, get)
	ctx := <-started
	client.Close()
	if runtime.GOOS == "linux" {
		eventually(t, "the disconnect", func() bool { _, closed := peek(connOf(ctx).socket); return closed })
	}
	if ctx.Err() != nil {
		t.Error("the background read saw the disconnect: CancelOnDisconnect is not needed")
	}
	proceed <- struct{}{}
	eventually(t, "the connection is closed", func() bool { return l.count.Load() == 0 })
}

// A read of one byte while a request is parsed or handled is net/http's background read, which reads nothing.
func TestReadOfOneByte(t *testing.T) {
	for p := fresh; p < evicted; p++ {
		c, client := pair(t)
		io.WriteString(client, "GET")
		c.move(p, time.Now())
		want := 1
		if p == parsed || p == handling || p == writing {
			want = 0
		}
		b := make([]byte, 2)
		if n, err := c.Read(b[:1]); n != want || err != nil {
			t.Errorf("%s: Read() = %d, %v, want %d", phaseNames[p], n, err, want)
		}
		if n, err := c.Read(b); string(b[:n]) != "GET"[want:want+2] || err != nil {
			t.Errorf("%s: the next Read() = %q, %v", phaseNames[p], b[:n], err)
		}
	}
}

// The context ends when the client disconnects, and not before.
func TestCancelOnDisconnect(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("disconnects are detected on Linux only")
	}
	contexts, proceed := make(chan context.Context), make(chan struct{})
	var l *Listener
	l, _ = serve(t, listenTCP(t), 10, func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := l.CancelOnDisconnect(r.Context())
		defer cancel()
		contexts <- ctx
		<-proceed
	})
	request := func(c net.Conn) context.Context {
		io.WriteString(c, get)
		return <-contexts
	}
	leaves, stays := dial(t, l), dial(t, l)
	left, stayed := request(leaves), request(stays)
	leaves.Close()
	select {
	case <-left.Done():
	case <-time.After(waitLimit):
		t.Error("the client has disconnected, its context was not cancelled")
	}
	time.Sleep(3 * disconnectCheck)
	if err := stayed.Err(); err != nil {
		t.Errorf("the client is connected, its context: %v", err)
	}
	close(proceed)
	if status := receive(t, stays); status != 200 {
		t.Errorf("status %d", status)
	}
	if stayed.Err() == nil {
		t.Error("the context outlives the request")
	}
	ctx, cancel := l.CancelOnDisconnect(t.Context()) // of no connection
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}
	if cancel(); ctx.Err() == nil {
		t.Error("not cancelled")
	}
}

func TestPeek(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("peek is supported on Linux only")
	}
	c, client := pair(t)
	check := func(what string, wantUnread, wantClosed bool) {
		t.Helper()
		eventually(t, what, func() bool {
			unread, closed := peek(c.Conn)
			return unread == wantUnread && closed == wantClosed
		})
	}
	check("nothing sent", false, false)
	client.Write([]byte("x"))
	check("a byte sent", true, false)
	c.Conn.Read(make([]byte, 1))
	check("the byte read", false, false)
	client.Close()
	check("closed by the client", false, true)
	c.Close()
	check("closed here", false, true)
	if unread, closed := peek(newPipe()); unread || closed {
		t.Error("peek() of a pipe is not false")
	}
}
