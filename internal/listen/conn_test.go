package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
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
			l := serve(t, 10, nil, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if r.URL.Path == "/400" {
					http.Error(w, "400", 400)
				}
			})
			client := l.dial("127.0.0.1")
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

// net/http behaves as readInBackground expects: it takes a read without a byte and without an error for nothing. If
// this fails with a new version of Go, that one behaves differently.
func TestBackgroundRead(t *testing.T) {
	for request, slow := range map[string]bool{
		get: false,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx": false,
		"GET /?q=x HTTP/1.1\r\nHost: x\r\n\r\n":                    true,
		"GET / HTTP/1.1\r\nHost: x\r\nprefer: count=exact\r\n\r\n": true,
	} {
		started, proceed := make(chan context.Context), make(chan struct{})
		l := serve(t, 10, nil, func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			started <- r.Context()
			<-proceed
		})
		client := l.dial("127.0.0.1")
		responses := bufio.NewReader(client)
		for range 3 {
			io.WriteString(client, request)
			<-started
			io.WriteString(client, request) // while the first is handled
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
		io.WriteString(client, request+request) // the second is in the buffer when the first ends
		<-started
		proceed <- struct{}{}
		ctx := <-started
		client.Close()
		if slow {
			l.wait("the end of the context", func() bool { return ctx.Err() != nil })
		} else {
			time.Sleep(50 * time.Millisecond) // A background read would have found the disconnect in less.
			if ctx.Err() != nil {
				t.Errorf("the background read found the disconnect of %q", request)
			}
		}
		close(proceed)
		l.wait("the connection is closed", func() bool { return l.open() == 0 })
	}
}

// A GET may take longer than the read timeout: neither its context ends then, nor that of the next request.
func TestLongGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ended := make(pipes, 1), make(chan error, 2)
		serveOn(t, p, 1, nil, func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Hour)
			ended <- r.Context().Err()
		})
		conn := p.connect(t)
		for range 2 {
			if status := send(conn, "GET /?q=x HTTP/1.1\r\nHost: x\r\n\r\n"); status != 200 {
				t.Errorf("status %d", status)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// A client that leaves during a search is noticed, also if its connection was idle until just before its read timeout.
func TestAbandonedAfterIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, noticed := make(pipes, 1), make(chan bool, 2)
		serveOn(t, p, 1, nil, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "" {
				return
			}
			select {
			case <-r.Context().Done():
			case <-time.After(3 * time.Hour):
			}
			noticed <- r.Context().Err() != nil
		})
		conn := p.connect(t)
		if status := send(conn, get); status != 200 {
			t.Errorf("status %d", status)
		}
		time.Sleep(59 * time.Minute)
		io.WriteString(conn, "GET /?q=x HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(30 * time.Minute)
		conn.Close()
		if !<-noticed {
			t.Error("the handler did not notice that the client has left")
		}
	})
}

// A head is served wherever its packets end: net/http asks for a single byte when its buffer is nearly full.
func TestSplitHead(t *testing.T) {
	l := serve(t, 1, nil, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	const header = "/ HTTP/1.1\r\nHost: x\r\nX: "
	for _, start := range []string{"GET " + header, "POST " + header, "GET /", "POST /"} {
		conn := l.dialMany(1, "127.0.0.1", start+strings.Repeat("x", 4095-len(start)))[0]
		l.waitState("receiving", 1)
		end := "x\r\n\r\n"
		if !strings.Contains(start, "Host") {
			end = "x HTTP/1.1\r\nHost: x\r\n\r\n"
		}
		if status := send(conn, end); status != 200 {
			t.Errorf("%.10q, split: status %d", start, status)
		}
		conn.Close()
		l.wait("the end", func() bool { return l.open() == 0 })
	}
}

// What follows a GET does not end it, even if it is no request.
func TestWrongBytesAfterGet(t *testing.T) {
	started, proceed := make(chan context.Context), make(chan struct{})
	l := serve(t, 1, nil, func(_ http.ResponseWriter, r *http.Request) {
		started <- r.Context()
		<-proceed
	})
	conn := l.dialMany(1, "127.0.0.1", get)[0]
	ctx := <-started
	io.WriteString(conn, "\n")
	time.Sleep(50 * time.Millisecond) // It is read in less.
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}
	close(proceed)
	if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 200 OK\r\n") {
		t.Errorf("got %q, %v", text, err)
	}
}

// A drain closes connections without a request after a second, completes requests, and counts those that it cuts off.
func TestDrain(t *testing.T) {
	const limit = 10 * time.Second
	for name, c := range map[string]struct {
		sent     []string // by each client
		takes    time.Duration
		cut      int
		took     time.Duration
		response int // of the first client
	}{
		"no connections":     {nil, 0, 0, 0, 0},
		"nothing sent":       {[]string{""}, 0, 0, time.Second, 0},
		"short requests":     {[]string{get, get}, time.Second / 2, 0, time.Second / 2, 200},
		"a request and idle": {[]string{get, ""}, 3 * time.Second, 0, 3 * time.Second, 200},
		"half a request":     {[]string{"GET", "", "GET"}, 0, 0, 2 * time.Second, 0},
		"a long request":     {[]string{get, "GET", get}, time.Minute, 2, limit, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := make(pipes, 10)
				var l client
				l = serveOn(t, p, 10, nil, func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(c.takes)
					if l.Draining() {
						w.Header().Set("Connection", "close")
					}
				})
				t.Cleanup(func() { time.Sleep(time.Hour) }) // until handlers end
				statuses := make(chan int, len(c.sent))
				for i, sent := range c.sent {
					conn := p.connect(t)
					io.WriteString(conn, sent)
					if i == 0 {
						go func() { statuses <- receive(conn) }()
					} else {
						go io.Copy(io.Discard, conn)
					}
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				if cut := l.Drain(ctx); cut != c.cut {
					t.Errorf("Drain() = %d, want %d", cut, c.cut)
				}
				if took := time.Since(start); took < c.took || took > c.took+2*drainInterval {
					t.Errorf("Drain() took %v, want %v", took, c.took)
				}
				if len(c.sent) > 0 {
					if status := <-statuses; status != c.response {
						t.Errorf("the first client got status %d, want %d", status, c.response)
					}
				}
			})
		})
	}
}

// slowAccept returns a connection only when it is allowed to.
type slowAccept struct {
	pipes
	proceed chan struct{}
}

func (l slowAccept) Accept() (c net.Conn, err error) {
	if c, err = l.pipes.Accept(); err == nil {
		<-l.proceed
	}
	return c, err
}

// A drain serves requests that arrive within its first second, and waits for a connection that is just being accepted.
func TestDrainServesLateRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := slowAccept{make(pipes, 1), make(chan struct{})}
		l := serveOn(t, slow, 10, nil, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
		conn := slow.connect(t)
		synctest.Wait()
		time.AfterFunc(lingerTime/4, func() { close(slow.proceed) })
		time.AfterFunc(lingerTime/2, func() { io.WriteString(conn, get) })
		status := make(chan int, 1)
		go func() { status <- receive(conn) }()
		if cut := l.Drain(t.Context()); cut != 0 {
			t.Errorf("Drain() = %d", cut)
		}
		if got := <-status; got != 200 {
			t.Errorf("status %d", got)
		}
		time.Sleep(time.Hour) // until net/http has closed the connection
	})
}

// errors of Accept that are temporary are returned to net/http, which waits and calls it again.
func TestAcceptError(t *testing.T) {
	broken := failing{errors.New("no file is free")}
	cfg, _ := testConfig(1)
	l := New(broken, cfg)
	if _, err := l.Accept(); err != broken.err || l.Stats().AcceptErrors != 1 {
		t.Errorf("Accept() = %v, %d errors", err, l.Stats().AcceptErrors)
	}
	l.draining.Store(true)
	if _, err := l.Accept(); err != broken.err || l.Stats().AcceptErrors != 1 {
		t.Errorf("Accept() in a drain = %v, %d errors", err, l.Stats().AcceptErrors)
	}
}

type failing struct{ err error }

func (f failing) Accept() (net.Conn, error) { return nil, f.err }
func (f failing) Close() error              { return nil }
func (f failing) Addr() net.Addr            { return nil }

// Over TLS requests are served, a client without TLS is told so, a connection over the limit gets an alert, and a
// handshake that hangs makes way, at whatever point.
func TestTLS(t *testing.T) {
	c, proceed := serveTokens(t, 1, withTLS)
	secure := func(conn net.Conn) *tls.Conn { return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) }
	closed := func() { c.wait("no connection", func() bool { return c.open() == 0 }) }

	plain := c.dial("127.0.0.1")
	io.WriteString(plain, get)
	if text, err := io.ReadAll(plain); err != nil || string(text) != "error 426" {
		t.Errorf("without TLS: %q, %v", text, err)
	}
	plain.Close()
	closed()

	distrustful := tls.Client(c.dial("127.0.0.1"), &tls.Config{ServerName: "x"})
	if err := distrustful.Handshake(); err == nil {
		t.Error("the certificate is trusted")
	}
	c.wait("the log", func() bool {
		return strings.Contains(c.log.String(), "TLS handshake failed from "+distrustful.LocalAddr().String()+
			" reason remote error: tls: bad certificate")
	})
	closed()

	for _, n := range []int{0, 1, 100, 4096} {
		hanging := c.dialMany(1, "127.0.0.1", clientHello(t, n))
		c.wait("a response to another client", func() bool { return send(secure(c.dial("127.0.0.2")), get) == 200 })
		if _, err := io.Copy(io.Discard, hanging[0]); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a handshake with %d bytes: %v", n, err)
		}
		closed()
	}

	busy := secure(c.dial("127.0.0.1"))
	io.WriteString(busy, strings.Replace(get, "/", "/wait", 1))
	c.waitState("handling", 1)
	_, err := io.WriteString(secure(c.dial("127.0.0.1")), get)
	if e, ok := errors.AsType[*net.OpError](err); !ok || !strings.Contains(e.Error(), "internal error") {
		t.Errorf("refused with %v", err)
	}
	close(proceed)
	if status := receive(busy); status != 200 {
		t.Errorf("status %d", status)
	}
}

// clientHello is the first message of a handshake, at most n bytes of it.
func clientHello(t *testing.T, n int) string {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake()
	b := make([]byte, 4096)
	got, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:min(n, got)])
}

// An earlier deadline is set at once: it may end a read. Any other is set before the next wait, unless the one that is
// set is less than a second earlier.
func TestDeadline(t *testing.T) {
	var d deadline
	now := time.Now()
	for i, c := range []struct {
		wanted    time.Time
		now, next bool // whether it is set at once, or before the next wait
	}{
		{time.Time{}, false, false}, {now, true, false}, {now.Add(999 * time.Millisecond), false, false},
		{now.Add(time.Second), false, true}, {now.Add(time.Second - 1), true, false}, {time.Time{}, false, true},
	} {
		if first, second := d.want(c.wanted), d.due(); first != c.now || second != c.next {
			t.Errorf("%d: want(%v) = %v, and then due() = %v", i, c.wanted, first, second)
		}
	}
}
