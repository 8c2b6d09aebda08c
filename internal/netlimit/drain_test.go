package netlimit

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

const drainLimit = 10 * time.Second

var drains = map[string]struct {
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
	"a long request":     {[]string{get, "GET", get}, time.Minute, 2, drainLimit, 0},
}

// Connections without a request are closed after a second, requests get their response, and what is left at the end
// is cut off and counted.
func TestDrain(t *testing.T) {
	for name, c := range drains {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				var l *Listener
				l, _ = serve(t, p, 10, func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(c.takes)
					if l.Draining() {
						w.Header().Set("Connection", "close")
					}
				})
				statuses := make(chan int, len(c.sent))
				for i, sent := range c.sent {
					client := p.connect(t)
					io.WriteString(client, sent)
					if i == 0 {
						go func() { statuses <- receive(t, client) }()
					} else {
						go io.Copy(io.Discard, client)
					}
				}
				synctest.Wait()
				if l.Draining() {
					t.Error("draining before Drain")
				}
				ctx, cancel := context.WithTimeout(t.Context(), drainLimit)
				defer cancel()
				start := time.Now()
				if cut := l.Drain(ctx); cut != c.cut {
					t.Errorf("Drain() = %d, want %d", cut, c.cut)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("Drain() took %v, want %v", took, c.took)
				}
				if len(c.sent) > 0 {
					if status := <-statuses; status != c.response {
						t.Errorf("the first client got status %d, want %d", status, c.response)
					}
				}
				if _, err := l.Accept(); err == nil {
					t.Error("a connection was accepted after Drain")
				}
			})
		})
	}
}

// A request that arrives within the second is served; the connection is closed when the response did not end it.
func TestDrainServesLateRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l, _ := serve(t, p, 10, func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Second) })
		client := p.connect(t)
		synctest.Wait()
		time.AfterFunc(lingerTime/2, func() { io.WriteString(client, get) })
		statuses := make(chan int, 1)
		go func() { statuses <- receive(t, client) }()
		start := time.Now()
		if cut := l.Drain(t.Context()); cut != 0 {
			t.Errorf("Drain() = %d", cut)
		}
		if status := <-statuses; status != 200 {
			t.Errorf("status %d", status)
		}
		if took := time.Since(start); took != 2500*time.Millisecond {
			t.Errorf("Drain() took %v", took)
		}
	})
}

// lateAccept returns connections when it is allowed to.
type lateAccept struct {
	*pipes
	proceed chan struct{}
}

func (l lateAccept) Accept() (c net.Conn, err error) {
	if c, err = l.pipes.Accept(); err == nil {
		<-l.proceed
	}
	return c, err
}

// A connection that the kernel has accepted when the drain starts is waited for and served.
func TestDrainWaitsForTheLastAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := lateAccept{newPipes(), make(chan struct{})}
		l, _ := serve(t, slow, 10, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
		client := slow.connect(t)
		drained := make(chan int, 1)
		synctest.Wait()
		go func() { drained <- l.Drain(t.Context()) }()
		time.Sleep(lingerTime / 2)
		select {
		case <-drained:
			t.Error("Drain() returned before the last connection was accepted")
		default:
		}
		close(slow.proceed)
		if status := send(t, client, get); status != 200 {
			t.Errorf("status %d", status)
		}
		if cut := <-drained; cut != 0 {
			t.Errorf("Drain() = %d", cut)
		}
	})
}

// A request that was received, but not read yet by a busy process, is not cut off with the idle connections.
func TestDrainKeepsUnreadRequests(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("unread bytes can't be seen")
	}
	c, client := pair(t)
	io.WriteString(client, "request")
	eventually(t, "the bytes arrive", func() bool { unread, _ := peek(c.Conn); return unread })
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.listener.Drain(ctx)
	}()
	eventually(t, "idle connections are closed", c.listener.closeIdle.Load)
	b := make([]byte, 10)
	if n, err := c.Read(b); string(b[:n]) != "request" {
		t.Errorf("Read() = %q, %v", b[:n], err)
	}
	cancel()
	<-drained
}

// Close ends the wait for a slot too.
func TestCloseWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, proceed := newPipes(), make(chan struct{})
		l, _ := serve(t, p, 1, func(http.ResponseWriter, *http.Request) { <-proceed })
		client := p.connect(t)
		io.WriteString(client, get)
		go io.Copy(io.Discard, client)
		synctest.Wait()
		l.Close()
		time.Sleep(10 * time.Millisecond)
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.closed {
			t.Error("still waiting for a slot")
		}
		close(proceed)
	})
}
