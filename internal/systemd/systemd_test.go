package systemd

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// listen is the socket of a manager.
func listen(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// receive returns the next message, or "" if there is none for so long.
func receive(t *testing.T, c *net.UnixConn, within time.Duration) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(within))
	b := make([]byte, 4096)
	n, _ := c.Read(b)
	return string(b[:n])
}

// The manager hears of a service that responds, and not of one that fails or hangs.
func TestWatchdog(t *testing.T) {
	var status atomic.Int32
	var hangs atomic.Bool
	status.Store(200)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			<-r.Context().Done()
		}
		w.WriteHeader(int(status.Load()))
	}))
	defer s.Close()
	name := filepath.Join(t.TempDir(), "socket")
	socket := listen(t, name)
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "400000")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watchdog(ctx, s.URL)
	}()
	alive := func() {
		t.Helper()
		for range 3 {
			if got := receive(t, socket, time.Minute); got != "WATCHDOG=1" {
				t.Fatalf("got %q", got)
			}
		}
	}
	silent := func(what string) {
		t.Helper()
		for start := time.Now(); receive(t, socket, 2*time.Second) != ""; { // those that were sent before
			if time.Since(start) > time.Minute {
				t.Fatalf("%s: the process counts as alive", what)
			}
		}
	}
	alive()
	status.Store(500)
	silent("an error")
	status.Store(200)
	alive()
	hangs.Store(true)
	silent("no response")
	hangs.Store(false)
	alive()
	cancel()
	<-ended
	if !isAlive(nil, "") {
		t.Error("without a URL, the process is not alive")
	}
}
