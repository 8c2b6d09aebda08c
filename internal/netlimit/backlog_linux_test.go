package netlimit

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// When all slots are in use, other connections are refused, also many at once, and admitted when a slot is free.
func TestRefuse(t *testing.T) {
	started, proceed := make(chan struct{}), make(chan struct{})
	l, messages := serve(t, listenTCP(t), 1, func(http.ResponseWriter, *http.Request) {
		started <- struct{}{}
		<-proceed
	})
	first := dial(t, l)
	io.WriteString(first, get)
	<-started
	for _, sent := range []string{get, "", strings.Repeat("x", 20<<10)} {
		var clients []net.Conn
		for range 20 {
			c := dial(t, l)
			io.WriteString(c, sent)
			clients = append(clients, c)
		}
		for _, c := range clients {
			text, err := io.ReadAll(c)
			if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
				err = nil // not all that was sent arrived before the end
			}
			if err != nil || string(text) != "refused" {
				t.Fatalf("after %.10q: got %q, %v", sent, text, err)
			}
			c.Close()
		}
	}
	eventually(t, "refusals are closed", func() bool {
		l.admitting.Lock()
		defer l.admitting.Unlock()
		return len(l.backlog.refusing) == 0 && !l.backlog.scheduled
	})
	if !strings.Contains(messages.String(), "refused connections connections ") {
		t.Errorf("log: %s", messages)
	}
	if !l.overloaded.isSet() {
		t.Error("not overloaded")
	}
	go io.Copy(io.Discard, first)
	proceed <- struct{}{}
	first.Close()
	eventually(t, "the slot is free", func() bool { return l.count.Load() == 0 })
	second := dial(t, l)
	io.WriteString(second, get)
	<-started
	proceed <- struct{}{}
	if status := receive(t, second); status != 200 {
		t.Errorf("status %d", status)
	}
}

// A single refusal is logged.
func TestRefusalIsLogged(t *testing.T) {
	cfg, messages := testConfig(1)
	l := New(listenTCP(t), cfg)
	defer l.Close()
	l.count.Store(1)
	io.WriteString(dial(t, l), get)
	eventually(t, "the log", func() bool {
		l.pollBacklog(time.Now())
		return messages.String() ==
			"refused connections connections 1 limit 1 reason all connections that --most allows are in use\n"
	})
}

// queued is a listener with one connection in its accept queue, and the client of that. A Unix socket is in the queue
// as soon as it is connected.
func queued(t *testing.T) (net.Listener, net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.SetDeadline(time.Now().Add(waitLimit))
	return l, client
}

// Requests poll the accept queue until a second after the last refusal.
func TestPollInOverload(t *testing.T) {
	inner, _ := queued(t)
	cfg, _ := testConfig(1)
	synctest.Test(t, func(t *testing.T) {
		l := New(inner, cfg)
		l.count.Store(1)
		time.Sleep(time.Hour)
		now := time.Now()
		check := func(when string, at time.Time, overloaded bool, refused int) {
			t.Helper()
			l.pollInOverload(at)
			if n, set := len(l.backlog.refusing), l.overloaded.isSet(); set != overloaded || n != refused {
				t.Errorf("%s: overloaded %v, %d refused, want %v and %d", when, set, n, overloaded, refused)
			}
		}
		check("before any refusal", now, false, 0)
		l.overloaded.set(time.Hour - overloadFor)
		check("a second after a refusal", now, true, 1)
		if l.pacer.budget != refusalBurst-1 {
			t.Errorf("the pacer allows %d refusals after one, want %d", l.pacer.budget, refusalBurst-1)
		}
		l.backlog.advance(now.Add(overloadFor))
		check("a second after the next refusal", now.Add(overloadFor), true, 0)
		check("more than a second after it", now.Add(overloadFor+1), false, 0)
	})
}

// A refusal is completed also when the accept queue is not polled any more.
func TestRefusalWithoutPolls(t *testing.T) {
	inner, client := queued(t)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		b := newBacklog(inner, func() []byte { return []byte("refused") }, 3, &mu)
		mu.Lock()
		b.take(time.Now(), 1, func(netip.Addr, func() (net.Conn, error)) bool { return false })
		mu.Unlock()
		for _, step := range []struct {
			wait            time.Duration
			open, responded bool
		}{{0, true, false}, {2 * refusalDelay, true, true}, {refusalTimeout, false, false}} {
			time.Sleep(step.wait)
			synctest.Wait()
			mu.Lock()
			open := len(b.refusing) == 1
			if open != step.open || open && b.refusing[0].responded != step.responded {
				t.Errorf("after another %v: %+v", step.wait, b.refusing)
			}
			mu.Unlock()
		}
	})
	if text, err := io.ReadAll(client); err != nil || string(text) != "refused" {
		t.Errorf("the client got %q, %v", text, err)
	}
}

// A connection that waits in the queue gets the slot of an idle one, which is not closed before another needs it.
func TestAdmitInPlaceOfIdle(t *testing.T) {
	l, _ := serve(t, listenTCP(t), 1, func(http.ResponseWriter, *http.Request) {})
	first := dial(t, l)
	if status := send(t, first, get); status != 200 {
		t.Fatalf("status %d", status)
	}
	c := only(t, l)
	eventually(t, "the phase idle", func() bool { return c.phase() == idle })
	c.move(idle, time.Now().Add(-time.Hour)) // it has been idle for an hour
	if unread, closed := peek(first); unread || closed {
		t.Error("closed although no other connection needs the slot")
	}
	if status := send(t, dial(t, l), get); status != 200 {
		t.Errorf("status %d", status)
	}
	if _, err := first.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: %v", err)
	}
}

// socketPair is a socket as accept returns it, and its client.
func socketPair(t *testing.T) (server int, client int) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// A refusal is sent when a request arrives, or after 20 ms, and the connection is closed when the client has closed
// it, or after 100 ms.
func TestRefusal(t *testing.T) {
	start := time.Now()
	type step struct {
		at        time.Duration
		send      int // bytes of the client before
		closes    bool
		open      bool
		responded bool
	}
	for name, steps := range map[string][]step{
		"a request at once": {{0, 10, false, true, true}, {100 * time.Millisecond, 0, false, true, true},
			{111 * time.Millisecond, 0, false, false, true}},
		"a byte at once":  {{0, 1, false, true, true}},
		"a request later": {{0, 0, false, true, false}, {5 * time.Millisecond, 10, false, true, true}},
		"no request": {{0, 0, false, true, false}, {20 * time.Millisecond, 0, false, true, false},
			{20*time.Millisecond + 1, 0, false, true, true}},
		"a large request": {{0, 60 << 10, false, true, true}},
		"a full buffer":   {{0, 4096, false, true, true}},
		"closed":          {{0, 0, false, true, false}, {time.Millisecond, 0, true, false, false}},
		"closed after 10 ms": {{0, 10, false, true, true}, {9 * time.Millisecond, 0, true, true, true},
			{10 * time.Millisecond, 0, false, false, true}},
		"a request, closed":   {{0, 10, true, true, true}, {10 * time.Millisecond, 0, false, false, true}},
		"never closed":        {{0, 0, false, true, false}, {100*time.Millisecond + 1, 0, false, false, true}},
		"sends for too long ": {{0, 10, false, true, true}, {101 * time.Millisecond, 10, false, false, true}},
	} {
		server, client := socketPair(t)
		r, responses := refusal{fd: server, since: start}, 0
		for i, s := range steps {
			syscall.Write(client, make([]byte, s.send))
			if s.closes {
				syscall.Shutdown(client, syscall.SHUT_WR)
			}
			open := r.advance(start.Add(s.at), func() []byte { responses++; return []byte("refused") })
			if open != s.open || r.responded != s.responded {
				t.Errorf("%s, step %d: open %v, responded %v", name, i, open, r.responded)
			}
			if open && name != "closed after 10 ms" && !s.closes && s.at >= r.next.Sub(start)-refusalCheck {
				if n, err := syscall.Read(server, make([]byte, 1)); err != syscall.EAGAIN {
					t.Errorf("%s, step %d: %d bytes are unread, %v", name, i, n, err)
				}
			}
		}
		b := make([]byte, 100)
		n, _ := syscall.Read(client, b)
		if last := steps[len(steps)-1]; last.responded != (string(b[:max(n, 0)]) == "refused") || responses > 1 {
			t.Errorf("%s: the client got %q, of %d responses", name, b[:max(n, 0)], responses)
		}
		if last := steps[len(steps)-1]; last.responded {
			if n, err := syscall.Read(client, b); n != 0 || err != nil {
				t.Errorf("%s: after the response: %d, %v, want the end", name, n, err)
			}
		}
		if _, err := syscall.Write(server, nil); (err == syscall.EBADF) == steps[len(steps)-1].open {
			t.Errorf("%s: the socket: %v", name, err)
		}
		if steps[len(steps)-1].open {
			syscall.Close(server)
		}
		syscall.Close(client)
	}
}

// The number of connections that are taken or being refused at once is bounded.
func TestTakeIsBounded(t *testing.T) {
	inner := listenTCP(t)
	var mu sync.Mutex
	b := newBacklog(inner, func() []byte { return []byte("refused") }, 3, &mu)
	mu.Lock()
	defer mu.Unlock()
	for range 10 {
		dial(t, inner)
	}
	refuse := func(netip.Addr, func() (net.Conn, error)) bool { return false }
	now := time.Now()
	total, deadline := 0, time.Now().Add(waitLimit)
	for total < 2 && time.Now().Before(deadline) {
		n := b.take(now, 2-total, refuse)
		total += n
	}
	if total != 2 {
		t.Errorf("take() of at most 2 refused %d", total)
	}
	for len(b.refusing) < 3 && time.Now().Before(deadline) {
		b.take(now, 10, refuse)
	}
	if refused := b.take(now, 10, refuse); refused != 0 || len(b.refusing) != 3 {
		t.Errorf("take() = %d with %d being refused, want 0 and the maximum, 3", refused, len(b.refusing))
	}
	if refused := b.take(now.Add(time.Second), 10, refuse); refused != 3 {
		t.Errorf("take() refused %d after the others were closed, want 3", refused)
	}
	b.advance(now.Add(time.Minute))
	admitted := 0
	admit := func(_ netip.Addr, open func() (net.Conn, error)) bool {
		c, err := open()
		if err != nil {
			t.Error(err)
			return true
		}
		c.Close()
		admitted++
		return true
	}
	if refused := b.take(now, 1, admit); refused != 0 || admitted == 0 {
		t.Errorf("take() = %d with %d admitted, want all", refused, admitted)
	}
}

// A listener without a file has no backlog.
func TestTakeWithoutFile(t *testing.T) {
	b := newBacklog(newPipes(), nil, 3, new(sync.Mutex))
	if refused := b.take(time.Now(), 1, nil); b.canRefuse() || refused != 0 {
		t.Errorf("take() = %d", refused)
	}
}

// A connection is not evicted if its request was received but not read yet, except in favour of a smaller address.
// Requests that are sent ahead do not protect a client that reads no response.
func TestEvictUnread(t *testing.T) {
	for name, test := range map[string]struct {
		phase    phase
		arriving string
		wait     time.Duration
		want     bool
	}{
		"idle, in favour of the same address":    {idle, "127.0.0.1", time.Hour, false},
		"a body, in favour of the same address":  {receivingBody, "127.0.0.1", time.Hour, false},
		"writing, in favour of the same address": {writing, "127.0.0.1", time.Hour, true},
		"idle, in favour of a smaller address":   {idle, "10.0.0.1", 0, true},
	} {
		cfg, _ := testConfig(10)
		l := New(listenTCP(t), cfg)
		defer l.Close()
		now := time.Now()
		for range 2 {
			c, client := acceptFrom(t, l)
			io.WriteString(client, "GET / HTTP/1.1\r\n")
			eventually(t, "bytes arrive", func() bool { unread, _ := peek(c.socket); return unread })
			c.move(test.phase, now.Add(-test.wait))
		}
		if got := l.evict(now, l.countedAddress(netip.MustParseAddr(test.arriving)), true); got != test.want {
			t.Errorf("%s: evict() = %v", name, got)
		}
	}
}

// A connection whose response is not read is evicted, whichever it is of several pipelined requests.
func TestUnreadResponseIsEvicted(t *testing.T) {
	handled := make(chan context.Context, 10)
	l, _ := serve(t, listenTCP(t), 10, func(w http.ResponseWriter, r *http.Request) {
		handled <- r.Context()
		if r.URL.Path == "/long" {
			w.Write(make([]byte, 64<<20)) // more than any buffer takes
		}
	})
	client := dial(t, l)
	io.WriteString(client, get+"GET /long HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat(get, 1000))
	<-handled
	c := connOf(<-handled)
	eventually(t, "bytes are unread", func() bool { unread, _ := peek(c.socket); return unread })
	l.admitting.Lock()
	defer l.admitting.Unlock()
	if l.evict(time.Now(), netip.Addr{}, true) {
		t.Error("evicted while its response may be read")
	}
	eventually(t, "the eviction", func() bool { return l.evict(time.Now().Add(3*time.Second), netip.Addr{}, true) })
}

// For a client that does not read, the kernel buffers less if the client has not presented a token.
func TestUnsentBytes(t *testing.T) {
	for _, token := range []bool{false, true} {
		c, client := pair(t)
		client.(*net.TCPConn).SetReadBuffer(4 << 10)
		if token {
			c.listener.Identify(connContext(t.Context(), c), [32]byte{1})
		}
		taken := 0
		c.Conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		for b := make([]byte, 4<<10); ; {
			n, err := c.Conn.Write(b)
			if taken += n; err != nil {
				break
			}
		}
		// This includes what the client's side of the socket has received.
		if (taken > 512<<10) != token {
			t.Errorf("token %v: the kernel took %d bytes", token, taken)
		}
	}
}

// The socket of a connection is closed with it: no duplicate stays open.
func TestFileConnHasNoDuplicate(t *testing.T) {
	server, client := socketPair(t)
	defer syscall.Close(client)
	c, err := fileConn(server)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := syscall.Read(client, make([]byte, 1)); err != syscall.EAGAIN {
		t.Errorf("read: %d, %v, want that it is open", n, err)
	}
	c.Close()
	if n, err := syscall.Read(client, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("read: %d, %v, want the end", n, err)
	}
}

func TestAddressOf(t *testing.T) {
	for want, from := range map[string]syscall.Sockaddr{
		"10.0.0.1":    &syscall.SockaddrInet4{Addr: [4]byte{10, 0, 0, 1}},
		"2001:db8::1": &syscall.SockaddrInet6{Addr: netip.MustParseAddr("2001:db8::1").As16()},
		"invalid IP":  &syscall.SockaddrUnix{},
	} {
		if got := addressOf(from).String(); got != want {
			t.Errorf("addressOf(%#v) = %s, want %s", from, got, want)
		}
	}
}
