package netlimit

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A client without a token may take 10 s to read each part of a response, within the time limit of the whole response.
func TestWriteDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		token byte
		limit time.Duration // of the whole response, which net/http sets
		want  []time.Duration
	}{
		"without a token":         {0, 60, []time.Duration{60, 10, 12, 14}},
		"the end of the response": {0, 11, []time.Duration{11, 10}},
		"with a token":            {1, 60, []time.Duration{60}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg, _ := testConfig(1)
			l, start := New(newPipes(), cfg), time.Now()
			set := &deadlines{Conn: slow{newPipe()}}
			c := l.track(set)
			if test.token != 0 {
				l.Identify(connContext(t.Context(), c), [32]byte{test.token})
			}
			c.SetWriteDeadline(start.Add(test.limit * time.Second))
			c.move(handling, start)
			if n, err := c.Write(make([]byte, 3*writeSize-1)); n != 3*writeSize-1 || err != nil {
				t.Errorf("%s: Write() = %d, %v", name, n, err)
			}
			var got []time.Duration
			for _, at := range set.write {
				got = append(got, at.Sub(start)/time.Second)
			}
			if !slices.Equal(got, test.want) || c.phase() != handling {
				t.Errorf("%s: deadlines %v, want %v; then %s", name, got, test.want, phaseNames[c.phase()])
			}
		})
	}
}

// slow is a connection whose client takes two seconds to read the bytes of one Write.
type slow struct{ net.Conn }

func (slow) Write(b []byte) (int, error) {
	time.Sleep(2 * time.Second)
	return len(b), nil
}

// While a response is written, the wait begins again with each part that the client reads, and an eviction ends it.
func TestWriteProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := testConfig(1)
		l := New(newPipes(), cfg)
		client, accepted := net.Pipe()
		c := l.track(accepted)
		c.move(handling, time.Now())
		type result struct {
			n   int
			err error
		}
		results := make(chan result)
		go func() {
			n, err := c.Write(make([]byte, 3*writeSize))
			results <- result{n, err}
		}()
		for i := range 2 {
			time.Sleep(time.Second)
			if n, err := io.ReadFull(client, make([]byte, writeSize)); err != nil {
				t.Fatalf("read %d, %v", n, err)
			}
			synctest.Wait()
			want := newState(writing, time.Duration(i+1)*time.Second)
			if got := state(c.state.Load()); got != want {
				t.Errorf("part %d: %s since %v", i, phaseNames[got.phase()], got.since())
			}
		}
		if !c.evict(state(c.state.Load()), false) {
			t.Error("not evicted")
		}
		if r := <-results; r.n != 2*writeSize || !errors.Is(r.err, io.ErrClosedPipe) {
			t.Errorf("Write() = %d, %v", r.n, r.err)
		}
		c.Conn = slow{newPipe()} // as if it were not closed yet
		if n, err := c.writeResponse(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("writeResponse() = %d, %v after the eviction", n, err)
		}
	})
}

// While net/http waits for the client to read the last response, the connection may be evicted.
func TestCloseWrite(t *testing.T) {
	for _, p := range []phase{parsed, handling} {
		c, client := pair(t)
		c.move(p, c.listener.start)
		if err := c.CloseWrite(); err != nil || c.phase() != writing {
			t.Errorf("CloseWrite() = %v, then %s", err, phaseNames[c.phase()])
		}
		if text, err := io.ReadAll(client); err != nil || len(text) != 0 {
			t.Errorf("the client got %q, %v", text, err)
		}
		if since := state(c.state.Load()).since(); since <= 0 {
			t.Error("the wait did not begin again")
		}
	}
}
