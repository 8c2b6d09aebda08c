package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// pair is a tracked connection and its other end.
func pair(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(inner, 10, func(string, ...any) {})
	t.Cleanup(func() { l.Close() })
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepted.Close() })
	return accepted.(*conn), client
}

// waits reports how long a read waits before it times out.
func waits(t *testing.T, c *conn) time.Duration {
	t.Helper()
	start := time.Now()
	if _, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read() = %v, want a time-out", err)
	}
	return time.Since(start)
}

// However deadlines are set, a read ends within a second of the last one, never later.
func TestDeadlines(t *testing.T) {
	c, client := pair(t)
	const stall = 10 * time.Second // of a busy machine
	now := time.Now()
	c.SetReadDeadline(now.Add(200 * time.Millisecond))
	c.SetReadDeadline(now.Add(300 * time.Millisecond)) // near: what is armed stays
	waits(t, c)
	if took := time.Since(now); took < 200*time.Millisecond || took > stall {
		t.Errorf("two near deadlines: the read ended after %v", took)
	}
	c.SetReadDeadline(time.Now().Add(2 * stall))
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // earlier: armed anew
	if took := waits(t, c); took > stall {
		t.Errorf("an earlier deadline: waited %v", took)
	}
	c.SetReadDeadline(time.Now().Add(2 * stall))
	c.SetReadDeadline(time.Unix(1, 0)) // long ago, as the library ends a read
	if took := waits(t, c); took > stall {
		t.Errorf("a deadline long ago: waited %v", took)
	}
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	c.SetReadDeadline(time.Time{})
	time.AfterFunc(200*time.Millisecond, func() { client.Write([]byte("x")) })
	if n, err := c.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("a read without a deadline = %d, %v", n, err)
	}

	// One that has passed between two requests ends no write of the second.
	c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	c.SetWriteDeadline(time.Time{})
	time.Sleep(100 * time.Millisecond)
	c.SetWriteDeadline(time.Now().Add(time.Minute))
	if n, err := c.Write([]byte("x")); n != 1 || err != nil {
		t.Errorf("a write with a minute left = %d, %v", n, err)
	}
}

// While a handler has the request, the library's look-out ends at once, and what the client has sent
// meanwhile is still there for the next request.
func TestLookOut(t *testing.T) {
	c, client := pair(t)
	c.from.state(c, http.StateActive)
	if _, err := client.Write([]byte("next")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the look-out = %d, %v, want nothing", n, err)
	}
	c.from.state(c, http.StateIdle)
	b := make([]byte, 10)
	if n, err := c.Read(b); string(b[:n]) != "next" || err != nil {
		t.Errorf("the next read = %q, %v", b[:n], err)
	}
}

// late hands out connections when it is told to.
type late struct {
	net.Listener
	accepted, goOn chan struct{}
}

func (l late) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
		<-l.goOn
	}
	return c, err
}

// A connection that has left the queue of the kernel when the service is told to stop, and is not counted yet,
// is waited for and served. Its request must be read before the drain ends the connections that no request is on:
// where the machine stalled for longer than that, it shows nothing and is made again.
func TestDrainWaitsForTheLastAccepted(t *testing.T) {
	for range 5 {
		drained := time.Now()
		err := drainWithOneAccepted(t)
		if err == nil {
			return
		}
		if took := time.Since(drained); took < linger*9/10 {
			t.Fatal(err)
		}
		t.Logf("too slow to tell: %v", err)
	}
	t.Error("the machine was too slow each time")
}

func drainWithOneAccepted(t *testing.T) error {
	real, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	slow := late{real, make(chan struct{}), make(chan struct{})}
	l := newListener(slow, 10, func(string, ...any) {})
	service := &http.Server{ConnState: l.state, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })}
	defer service.Close()
	go service.Serve(l)
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	<-slow.accepted
	client.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	drained := make(chan int, 1)
	go func() { drained <- l.drain(context.Background()) }()
	select {
	case <-drained:
		close(slow.goOn)
		t.Fatal("the drain is over before the last connection that was accepted")
	case <-time.After(50 * time.Millisecond):
	}
	close(slow.goOn)
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		return fmt.Errorf("the last connection that was accepted: %w", err)
	}
	if response.StatusCode != 200 {
		t.Errorf("the last connection that was accepted is answered %s", response.Status)
	}
	if cut := <-drained; cut != 0 {
		t.Errorf("%d requests were cut off", cut)
	}
	return nil
}

// A request that has come, and that a busy process has not read yet, is not cut off when idle connections
// have had their time.
func TestDrainLeavesWhatHasCome(t *testing.T) {
	if !canRefuse {
		t.Skip("what is unread can't be seen here")
	}
	c, client := pair(t)
	if _, err := client.Write([]byte("asked")); err != nil {
		t.Fatal(err)
	}
	for silent(c.Conn) {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.from.drain(ctx)
	}()
	for !c.from.lingered.Load() {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-drained:
		t.Error("the connection is gone")
	case <-time.After(100 * time.Millisecond):
	}
	b := make([]byte, 10)
	if n, err := c.Read(b); string(b[:n]) != "asked" {
		t.Errorf("Read() = %q, %v", b[:n], err)
	}
	cancel()
	<-drained
}

// What a client stored is never taken for an answer of the library.
func TestLibraryAnswersAreRecognised(t *testing.T) {
	for text, want := range map[string]bool{
		"HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\n\r\n":  true,
		"HTTP/1.1 400 Bad Request" + libraryHeaders + "400 Bad Request": true,
		"HTTP/1.1 417 and then the rest of a long name\"}":              false,
		"HTTP/1.1 400 Bad Request\",\"tag\":\"x\"}":                     false,
		"HTTP/1.1 200 OK\r\n\r\n":                                       false,
	} {
		if _, _, ok := libraryAnswer([]byte(text)); ok != want {
			t.Errorf("libraryAnswer(%q) = %v, want %v", text, ok, want)
		}
	}
}

// Who gives way is told so only where nothing can have been asked.
func TestGiveWay(t *testing.T) {
	silent, client := pair(t)
	if !silent.giveWay(time.Now().Add(-time.Second)) { // found a while ago, among many
		t.Error("who never asked does not give way")
	}
	if text, err := io.ReadAll(client); err != nil || !strings.Contains(string(text), `"error":50301`) {
		t.Errorf("who never asked is told %q, %v", text, err)
	}
	asking, client := pair(t)
	client.Write([]byte("GET"))
	for b := make([]byte, 10); ; {
		if n, err := asking.Read(b); err != nil || n == 3 {
			break
		}
	}
	if asking.giveWay(time.Unix(0, asking.since.Load())) {
		t.Error("who has just begun to ask gives way")
	}
	if !asking.giveWay(time.Now().Add(time.Minute)) {
		t.Error("who began to ask long ago does not give way")
	}
	if text, _ := io.ReadAll(client); len(text) != 0 {
		t.Errorf("who began to ask is told %q", text)
	}
	client.Write([]byte(" / HTTP/1.1\r\n\r\n"))
	if n, err := asking.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes were read from who gave way", n)
	}
}
