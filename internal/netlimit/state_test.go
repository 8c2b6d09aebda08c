package netlimit

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var phaseNames = map[phase]string{
	fresh: "fresh", idle: "idle", receiving: "receiving", parsed: "parsed", handling: "handling",
	receivingBody: "receivingBody", writing: "writing", evicted: "evicted",
}

func TestState(t *testing.T) {
	ms := time.Millisecond
	for p, want := range map[phase]struct {
		wait             time.Duration
		inRequest, waits bool
	}{
		fresh:         {100 * ms, false, true},
		idle:          {1000 * ms, false, true},
		receiving:     {2000 * ms, true, true},
		parsed:        {2000 * ms, true, false},
		handling:      {2000 * ms, true, false},
		receivingBody: {2000 * ms, true, true},
		writing:       {25000 * ms, true, true},
	} {
		s := newState(p, time.Hour)
		if s.phase() != p || s.since() != time.Hour {
			t.Errorf("newState(%s, 1h) = %s since %v", phaseNames[p], phaseNames[s.phase()], s.since())
		}
		if s.overdue(time.Hour+ms-1, ms) || !s.overdue(time.Hour+ms, ms) {
			t.Errorf("%s: not overdue after exactly the limit", phaseNames[p])
		}
		if got := maxWait(p); got != want.wait {
			t.Errorf("%s: maxWait() = %v, want %v", phaseNames[p], got, want.wait)
		}
		if p.inRequest() != want.inRequest || p.waitsForClient() != want.waits {
			t.Errorf("%s: inRequest() = %v, waitsForClient() = %v", phaseNames[p], p.inRequest(), p.waitsForClient())
		}
	}
	if evicted.inRequest() || evicted.waitsForClient() {
		t.Error("an evicted connection is in a request or waits")
	}
}

// TestPhases follows connections of a real http.Server through their phases.
func TestPhases(t *testing.T) {
	for name, steps := range map[string][]struct {
		send  string // "" lets the handler return
		phase phase
		age   time.Duration // of the wait, where each step takes a second
	}{
		"one request": {
			{"GE", receiving, 0}, {"T / HTTP/1.1\r\n", receiving, 1}, {"Host: x\r\n\r\n", handling, 2}, {"", idle, 0},
			{get, handling, 0}, {"", idle, 0},
		},
		"a body": {
			{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", receivingBody, 0},
			{"a", receivingBody, 1}, {"b", handling, 2}, {"", idle, 0},
		},
		"pipelined requests": {
			{get + get + "GET", handling, 0}, {"", handling, 0}, {"", receiving, 0},
			{" / HTTP/1.1\r\nHost: x\r\n\r\n", handling, 1}, {"", idle, 0},
		},
		"a malformed request": {{"GET\r\n\r\n", parsed, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				proceed := make(chan struct{})
				p := newPipes()
				l, _ := serve(t, p, 10, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					<-proceed
				})
				client := p.connect(t)
				go io.Copy(io.Discard, client)
				synctest.Wait()
				c := only(t, l)
				if c.phase() != fresh {
					t.Errorf("after accept: %s", phaseNames[c.phase()])
				}
				for i, step := range steps {
					time.Sleep(time.Second)
					if step.send == "" {
						proceed <- struct{}{}
					} else if _, err := io.WriteString(client, step.send); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					s := state(c.state.Load())
					age := time.Since(l.start) - s.since()
					if s.phase() != step.phase || age != step.age*time.Second {
						t.Errorf("step %d: %s for %v, want %s for %ds",
							i, phaseNames[s.phase()], age, phaseNames[step.phase], step.age)
					}
				}
				client.Close()
			})
		})
	}
}

// An evicted connection stays so, and no request on it is handled.
func TestEvictedIsFinal(t *testing.T) {
	c, client := pair(t)
	if !c.evict(state(c.state.Load()), false) {
		t.Fatal("not evicted")
	}
	if text, err := io.ReadAll(client); err != nil || string(text) != "refused" {
		t.Errorf("a client that sent nothing got %q, %v", text, err)
	}
	if c.move(idle, time.Now()) || c.phase() != evicted {
		t.Errorf("moved to %s", phaseNames[c.phase()])
	}
	if len(c.listener.open()) != 0 {
		t.Error("still open")
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("the handler of an evicted connection was not aborted")
		}
	}()
	r, err := http.NewRequestWithContext(connContext(t.Context(), c), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	whileHandling(http.NotFoundHandler()).ServeHTTP(nil, r)
}

// late is a connection where something happens while a read returns.
type late struct {
	net.Conn
	during func()
}

func (l late) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.during()
	return n, err
}

// An eviction is void if anything was read since it was decided; otherwise what is read later is dropped.
func TestEvictWhileReading(t *testing.T) {
	c, client := pair(t)
	before := state(c.state.Load())
	io.WriteString(client, "GET")
	if n, err := c.Read(make([]byte, 10)); n != 3 || err != nil {
		t.Fatalf("Read() = %d, %v", n, err)
	}
	if c.evict(before, false) {
		t.Error("evicted although the first bytes of a request were read meanwhile")
	}
	if !c.evict(state(c.state.Load()), false) {
		t.Error("not evicted")
	}
	if text, _ := io.ReadAll(client); len(text) != 0 {
		t.Errorf("a client that has sent something got %q", text)
	}

	c, client = pair(t)
	c.Conn = late{c.Conn, func() { c.evict(state(c.state.Load()), false) }}
	io.WriteString(client, "GET")
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read() of an evicted connection = %d, %v", n, err)
	}
}

// Nothing is sent after an eviction: net/http takes the read that failed for a malformed request.
func TestWriteAfterEviction(t *testing.T) {
	for p := fresh; p < evicted; p++ {
		c, client := pair(t)
		inner := c.Conn
		c.Conn, c.socket = unclosed{inner}, unclosed{inner} // as if the eviction had not closed it yet
		c.move(p, time.Now())
		if !c.evict(state(c.state.Load()), false) {
			t.Fatalf("%s: not evicted", phaseNames[p])
		}
		n, err := io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request")
		if n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: Write() = %d, %v", phaseNames[p], n, err)
		}
		inner.Close()
		want := ""
		if p == fresh {
			want = "refused"
		}
		if text, err := io.ReadAll(client); err != nil || string(text) != want {
			t.Errorf("%s: the client got %q, %v, want %q", phaseNames[p], text, err, want)
		}
	}
}

// unclosed is a connection that stays open.
type unclosed struct{ net.Conn }

func (unclosed) Close() error { return nil }

// deadlines records the deadlines that are set.
type deadlines struct {
	net.Conn
	read, write []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = append(d.read, t); return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = append(d.write, t); return nil }

// A deadline is set if it is earlier than the current one, or at least a second later. None is removed.
func TestDeadlines(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for name, test := range map[string]struct{ set, want []time.Time }{
		"the same":           {[]time.Time{in(9), in(9)}, []time.Time{in(9)}},
		"less than a second": {[]time.Time{in(0), in(time.Second - 1)}, []time.Time{in(0)}},
		"a second":           {[]time.Time{in(0), in(time.Second)}, []time.Time{in(0), in(time.Second)}},
		"little by little": {[]time.Time{in(0), in(time.Second - 1), in(time.Second)},
			[]time.Time{in(0), in(time.Second)}},
		"earlier":          {[]time.Time{in(9), in(8)}, []time.Time{in(9), in(8)}},
		"none":             {[]time.Time{in(9), {}, in(9)}, []time.Time{in(9)}},
		"long ago":         {[]time.Time{in(9), time.Unix(1, 0), in(9)}, []time.Time{in(9), time.Unix(1, 0), in(9)}},
		"only in the past": {[]time.Time{time.Unix(1, 0)}, []time.Time{time.Unix(1, 0)}},
	} {
		got := new(deadlines)
		c := &conn{Conn: got, listener: new(Listener)}
		for _, at := range test.set {
			c.SetReadDeadline(at)
			c.SetWriteDeadline(at)
		}
		equal := func(a []time.Time) bool { return slices.EqualFunc(a, test.want, time.Time.Equal) }
		if !equal(got.read) || !equal(got.write) {
			t.Errorf("%s: set %v and %v, want %v", name, got.read, got.write, test.want)
		}
	}
}

// A real server closes a connection that stays idle or does not finish its request, within a second of its timeout.
func TestTimeouts(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing": "", "half a request": "GET", "idle": get, "half of the next": get + "GET",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				cfg, _ := testConfig(10)
				l := New(p, cfg)
				const timeout = 30 * time.Second
				s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
					ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout}
				go l.Serve(s)
				defer s.Close()
				client := p.connect(t)
				go io.WriteString(client, sent)
				start := time.Now()
				if _, err := io.Copy(io.Discard, client); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
				if took := time.Since(start); took < timeout || took > timeout+time.Second {
					t.Errorf("closed after %v, want %v", took, timeout)
				}
			})
		})
	}
}
