package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo is a server that sends back what it receives.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// exchange sends 10 bytes and returns what comes back before the connection ends.
func exchange(conn net.Conn) (string, error) {
	if _, err := io.WriteString(conn, "0123456789"); err != nil {
		return "", err
	}
	reply := make([]byte, 10)
	n, err := io.ReadFull(conn, reply)
	return string(reply[:n]), err
}

func TestFaults(t *testing.T) {
	for _, d := range []Direction{Requests, Replies} {
		for name, test := range map[string]struct {
			fault Fault
			want  []string // replies of consecutive connections
		}{
			"Close": {Close(d), []string{"", ""}},
			"Reset": {Reset(d), []string{"", ""}},
			"Once":  {Once(d, Close(d)), []string{"", "0123456789"}},
			"Delay": {Delay(d, 2*time.Millisecond, time.Millisecond), []string{"0123456789", "0123456789"}},
		} {
			p := New(t, echo(t))
			p.Set(test.fault)
			for i, want := range test.want {
				if got, err := exchange(dial(t, p)); got != want {
					t.Errorf("%s in direction %d: reply %d = %q, %v, want %q", name, d, i, got, err, want)
				}
			}
		}
	}
}

func TestLimit(t *testing.T) {
	p := New(t, echo(t))
	p.Set(Limit(Replies, 4))
	for range 2 {
		if got, err := exchange(dial(t, p)); got != "0123" || err == nil {
			t.Errorf("reply with Limit(Replies, 4) = %q, %v, want 4 bytes", got, err)
		}
	}
}

func TestDelay(t *testing.T) {
	p := New(t, echo(t))
	conn := dial(t, p)
	const delay = 50 * time.Millisecond
	p.Set(Delay(Replies, delay, 0))
	start := time.Now()
	if got, err := exchange(conn); err != nil || time.Since(start) < delay {
		t.Errorf("reply %q, %v after %v, want it after %v", got, err, time.Since(start), delay)
	}
	p.Set(Delay(Replies, time.Hour, 0))
	time.AfterFunc(delay, func() { p.Set(nil) })
	if got, err := exchange(conn); err != nil {
		t.Errorf("reply when the delay is removed = %q, %v", got, err)
	}
}

// A connection without some of its bytes must not be used again.
func TestDrop(t *testing.T) {
	for _, d := range []Direction{Requests, Replies} {
		p := New(t, echo(t))
		p.Set(Drop(d))
		conn := dial(t, p)
		time.AfterFunc(50*time.Millisecond, func() { p.Set(nil) })
		if got, err := exchange(conn); got != "" || err == nil {
			t.Errorf("reply with Drop(%d) = %q, %v, want none", d, got, err)
		}
		if got, err := exchange(dial(t, p)); err != nil {
			t.Errorf("reply after Drop(%d) = %q, %v", d, got, err)
		}
	}
}

func TestFreeze(t *testing.T) {
	p := New(t, echo(t))
	conn := dial(t, p)
	if _, err := exchange(conn); err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := exchange(conn)
	if e, ok := err.(net.Error); !ok || !e.Timeout() {
		t.Errorf("exchange() on a frozen connection = %v, want a timeout", err)
	}
	if got, err := exchange(dial(t, p)); err != nil {
		t.Errorf("exchange() on a new connection = %q, %v", got, err)
	}
}

func TestRefuseAndCut(t *testing.T) {
	p := New(t, echo(t))
	p.Refuse(1)
	for i, want := range []string{"", "0123456789"} {
		if got, _ := exchange(dial(t, p)); got != want {
			t.Errorf("connection %d after Refuse(1): reply %q, want %q", i, got, want)
		}
	}
	conn := dial(t, p)
	if _, err := exchange(conn); err != nil {
		t.Fatal(err)
	}
	p.Refuse(-1)
	p.Cut()
	for _, conn := range []net.Conn{conn, dial(t, p), dial(t, p)} {
		if got, err := exchange(conn); err == nil {
			t.Errorf("reply after Cut and Refuse(-1) = %q", got)
		}
	}
}

func TestReset(t *testing.T) {
	p := New(t, echo(t))
	conn := dial(t, p)
	if _, err := exchange(conn); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read() on an idle connection after Reset() = %d, %v, want a reset", n, err)
	}
}
