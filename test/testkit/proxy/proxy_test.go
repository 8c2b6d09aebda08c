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

// Each fault does what it says to the replies of consecutive connections, whatever its direction.
func TestFaults(t *testing.T) {
	const whole = "0123456789"
	for _, d := range []Direction{Requests, Replies} {
		for name, test := range map[string]struct {
			fault Fault
			want  []string
		}{
			"Close": {Close(d), []string{"", ""}},
			"Reset": {Reset(d), []string{"", ""}},
			"Once":  {Once(d, Close(d)), []string{"", whole}},
			"Limit": {Limit(d, 4), []string{"0123", "0123"}},
			"Delay": {Delay(d, 2*time.Millisecond, time.Millisecond), []string{whole, whole}},
			"Drop":  {Drop(d), []string{"", whole}}, // removed meanwhile; a connection that lost bytes is closed
		} {
			p := New(t, echo(t))
			p.Set(test.fault)
			if name == "Drop" {
				time.AfterFunc(50*time.Millisecond, func() { p.Set(nil) })
			}
			for i, want := range test.want {
				got, err := exchange(dial(t, p))
				if got != want && !(name == "Limit" && d == Requests && got == "") { // the reply may be cut off too
					t.Errorf("%s in direction %d: reply %d = %q, %v, want %q", name, d, i, got, err, want)
				}
			}
		}
	}
}

// A delay ends when it is removed.
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

// Open connections can be frozen, cut and reset, and new ones refused.
func TestConnections(t *testing.T) {
	p := New(t, echo(t))
	p.Refuse(1)
	if got, err := exchange(dial(t, p)); err == nil {
		t.Errorf("reply on a refused connection = %q", got)
	}
	open := func() net.Conn {
		t.Helper()
		conn := dial(t, p)
		if _, err := exchange(conn); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	frozen := open()
	p.Freeze()
	frozen.SetDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := exchange(frozen)
	if e, ok := err.(net.Error); !ok || !e.Timeout() {
		t.Errorf("exchange() on a frozen connection = %v, want a timeout", err)
	}
	reset := open()
	p.Reset()
	if n, err := reset.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read() on an idle connection after Reset() = %d, %v, want a reset", n, err)
	}
	cut := open()
	p.Refuse(-1)
	p.Cut()
	for _, conn := range []net.Conn{cut, dial(t, p), dial(t, p)} {
		if got, err := exchange(conn); err == nil {
			t.Errorf("reply after Cut and Refuse(-1) = %q", got)
		}
	}
}
