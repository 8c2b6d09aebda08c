package netlimit

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacer(t *testing.T) {
	start := time.Now()
	var p pacer
	for _, step := range []struct {
		at     time.Duration
		used   int // before
		refill bool
		budget int
	}{
		{0, 0, true, 4096},
		{time.Millisecond - 1, 4096, false, 0},
		{time.Millisecond, 0, true, 3},
		{2 * time.Millisecond, 1, true, 5},
		{2*time.Millisecond + 3*time.Second/10, 0, true, 1005},
		{time.Hour, 0, true, 4096},
	} {
		p.budget -= step.used
		if refilled := p.refill(start.Add(step.at)); refilled != step.refill || p.budget != step.budget {
			t.Errorf("at %v: refill() = %v, budget %d, want %v and %d",
				step.at, refilled, p.budget, step.refill, step.budget)
		}
	}
}

// A connection from the accept queue is closed where it can't be served any more, and none is refused for that.
func TestAdmit(t *testing.T) {
	cfg, _ := testConfig(1)
	for name, c := range map[string]struct {
		prepare func(l *Listener)
		err     error
		open    bool
	}{
		"served":                      {func(*Listener) {}, nil, true},
		"disconnected":                {func(*Listener) {}, io.EOF, false},
		"closed listener":             {func(l *Listener) { l.stopped(net.ErrClosed) }, nil, false},
		"connections wait for Accept": {func(l *Listener) { l.accepted <- nil }, nil, false},
	} {
		l, accepted := New(newPipes(), cfg), newPipe()
		c.prepare(l)
		if !l.admit(time.Now(), netip.Addr{}, func() (net.Conn, error) { return accepted, c.err }) {
			t.Errorf("%s: refused", name)
		}
		if open := l.count.Load() == 1; open != c.open {
			t.Errorf("%s: open %v", name, open)
		}
		if err := accepted.SetDeadline(time.Now()); c.err == nil && (err == nil) != c.open {
			t.Errorf("%s: SetDeadline() = %v", name, err)
		}
	}
	full := New(newPipes(), cfg)
	full.track(newPipe())
	if full.admit(time.Now(), netip.Addr{}, func() (net.Conn, error) { return newPipe(), nil }) {
		t.Error("admitted beyond the limit")
	}
}

// The first refusals and evictions are reported at once, others once a second.
func TestReport(t *testing.T) {
	var r report
	start := time.Now()
	for _, step := range []struct {
		at                                         time.Duration
		refused, evicted, wantRefused, wantEvicted int
	}{
		{0, 0, 0, 0, 0}, {1, 1, 0, 1, 0}, {2, 2, 4, 0, 0}, {time.Second, 3, 1, 0, 0}, {time.Second + 1, 0, 0, 5, 5},
		{2*time.Second + 1, 0, 0, 0, 0}, {2*time.Second + 2, 7, 0, 7, 0}, {4 * time.Second, 0, 1, 0, 1},
	} {
		r.refused, r.evicted = r.refused+step.refused, r.evicted+step.evicted
		if got := r.take(start.Add(step.at)); got.refused != step.wantRefused || got.evicted != step.wantEvicted {
			t.Errorf("after %v: %d refused and %d evicted, want %d and %d",
				step.at, got.refused, got.evicted, step.wantRefused, step.wantEvicted)
		}
	}
}

// With one slot, a second connection is served when the first has waited for its client as long as its phase allows,
// and no earlier.
func TestSlotIsFreed(t *testing.T) {
	const head = "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
	for name, first := range map[string]struct {
		sent  string
		after time.Duration
	}{
		"nothing sent":              {"", 100 * time.Millisecond},
		"half a head":               {"GET", 100 * time.Millisecond},
		"half a body":               {head + "x", 100 * time.Millisecond},
		"a response not read":       {"GET /long HTTP/1.1\r\nHost: x\r\n\r\n", 100 * time.Millisecond},
		"pipelined requests":        {strings.Repeat("GET /long HTTP/1.1\r\nHost: x\r\n\r\n", 3), 100 * time.Millisecond},
		"of a token with all slots": {"GET /long HTTP/1.1\r\nHost: x\r\nAuthorization: x\r\n\r\n", 100 * time.Millisecond},
		"idle":                      {get, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				var l *Listener
				l, _ = serve(t, p, 1, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					if r.Header.Get("Authorization") != "" {
						l.Identify(r.Context(), [32]byte{1})
					}
					if r.URL.Path == "/long" {
						w.Write(make([]byte, 64<<10))
					}
				})
				client, text := p.connect(t), make(chan string, 1)
				io.WriteString(client, first.sent)
				if name == "idle" {
					receive(t, client)
				}
				read := func() {
					b, _ := io.ReadAll(client)
					text <- string(b)
				}
				if first.sent == "" {
					go read()
				}
				start := time.Now()
				if status := send(t, p.connect(t), get); status != 200 {
					t.Errorf("the second connection got status %d", status)
				}
				if took := time.Since(start); took < first.after || took > first.after+100*time.Millisecond {
					t.Errorf("the second connection was served after %v, want %v", took, first.after)
				}
				if first.sent != "" {
					read()
				}
				if got := <-text; (got == "refused") != (first.sent == "") {
					t.Errorf("the first connection got %.20q", got)
				}
			})
		})
	}
}

// Connections that are in use are not evicted: another waits until one is closed.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, proceed := newPipes(), make(chan struct{})
		l, _ := serve(t, p, 2, func(http.ResponseWriter, *http.Request) { <-proceed })
		one, two, three := p.connect(t), p.connect(t), p.connect(t)
		io.WriteString(one, get)
		io.WriteString(two, get)
		statuses := make(chan int, 1)
		go func() { statuses <- send(t, three, get) }()
		time.Sleep(20 * time.Second)
		if n := l.count.Load(); n != 2 {
			t.Errorf("%d connections are open", n)
		}
		one.Close()
		close(proceed)
		start := time.Now()
		if status := <-statuses; status != 200 {
			t.Errorf("status %d", status)
		}
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("the slot was taken %v after it was freed", took)
		}
	})
}

// temporary is an error after which accept may succeed.
type temporary struct{}

func (temporary) Error() string   { return "temporary" }
func (temporary) Temporary() bool { return true }

// Errors of accept that may pass are retried after a pause that grows to a second; others end the server.
func TestAcceptFails(t *testing.T) {
	for _, failure := range []error{temporary{}, syscall.EMFILE, syscall.ENFILE} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipes()
			_, messages := serve(t, p, 2, func(http.ResponseWriter, *http.Request) {})
			for range 100 {
				p.results <- failure
			}
			start := time.Now()
			if status := send(t, p.connect(t), get); status != 200 {
				t.Errorf("status %d", status)
			}
			// 1 + 2 + 4 + … + 512 ms, then 90 times a second
			if took := time.Since(start).Round(time.Second); took != 91*time.Second {
				t.Errorf("%v: served after %v", failure, took)
			}
			if n := strings.Count(messages.String(), "accept failed reason "+failure.Error()+" connections 0"); n != 100 {
				t.Errorf("%v: logged %d times:\n%s", failure, n, messages)
			}
			p.results <- failure
			start = time.Now()
			send(t, p.connect(t), get)
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Errorf("%v: the pause after a success is %v", failure, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		cfg, _ := testConfig(1)
		p.results <- errors.New("broken")
		if err := New(p, cfg).Serve(&http.Server{Handler: http.NotFoundHandler()}); err == nil || err.Error() != "broken" {
			t.Errorf("Serve() = %v", err)
		}
	})
}

// Without files for another connection, an idle one is closed at once although there are slots.
func TestOutOfFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a lack of files is detected on Linux only")
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l, _ := serve(t, p, 10, func(http.ResponseWriter, *http.Request) {})
		idler := p.connect(t)
		send(t, idler, get)
		time.Sleep(2 * time.Second)
		p.results <- syscall.EMFILE
		idler.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := idler.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the idle connection is open after 10 ms: %v", err)
		}
		if status := send(t, p.connect(t), get); status != 200 {
			t.Errorf("status %d", status)
		}
		if n := l.count.Load(); n != 1 {
			t.Errorf("%d connections are open", n)
		}
	})
}

// In an overload, a connection without a token is closed after its response.
func TestOneResponseWithoutToken(t *testing.T) {
	for _, c := range []struct {
		overloaded, token, open bool
	}{
		{true, false, false}, {true, true, true}, {false, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipes()
			var l *Listener
			l, _ = serve(t, p, 2, func(_ http.ResponseWriter, r *http.Request) {
				if c.token {
					l.Identify(r.Context(), [32]byte{1})
				}
			})
			if time.Sleep(time.Millisecond); c.overloaded {
				l.overloaded.set(time.Since(l.start))
			}
			client := p.connect(t)
			if status := send(t, client, get); status != 200 {
				t.Errorf("%+v: status %d", c, status)
			}
			synctest.Wait()
			if open := l.count.Load() == 1; open != c.open {
				t.Errorf("%+v: open after the response: %v", c, open)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	cfg, _ := testConfig(4)
	l := New(newPipes(), cfg)
	owned := func(owner byte) *conn {
		c := l.track(newPipe())
		l.Identify(connContext(t.Context(), c), [32]byte{owner})
		return c
	}
	a1, a2, b := owned('a'), owned('a'), owned('b')
	check := func(want int) {
		t.Helper()
		if got := l.Owners(); got != want {
			t.Errorf("Owners() = %d, want %d", got, want)
		}
	}
	check(2)
	a1.Close()
	a1.Close() // counts once
	check(2)
	l.Identify(connContext(t.Context(), a1), [32]byte{'x'}) // closed: counts for none
	check(2)
	l.Identify(connContext(t.Context(), b), [32]byte{'a'})
	check(1)
	l.Identify(connContext(t.Context(), b), [32]byte{'b'})
	check(2)
	a2.Close()
	check(1)
	b.Close()
	check(0)
	if n := l.count.Load(); n != 0 || len(l.owners.all) != 0 {
		t.Errorf("%d connections and %d owners are left", n, len(l.owners.all))
	}
}

// After a lack of files accept is tried again at once if there is a slot, also when no connection could be closed.
func TestWaitForSlotWithoutFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := testConfig(2)
		l := New(newPipes(), cfg)
		l.track(newPipe())
		start := time.Now()
		if l.waitForSlot(true); time.Since(start) != 0 {
			t.Errorf("waited %v", time.Since(start))
		}
	})
}
