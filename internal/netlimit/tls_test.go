package netlimit

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// withTLS makes the servers and clients of a test use TLS.
func withTLS(t *testing.T) {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	transport = &tls.Config{Certificates: s.TLS.Certificates}
	t.Cleanup(func() { transport = nil })
}

// What holds without TLS also holds with it.
func TestOverTLS(t *testing.T) {
	withTLS(t)
	t.Run("error responses", TestErrorResponses)
	t.Run("background read", TestBackgroundRead)
	if runtime.GOOS == "linux" {
		t.Run("cancel on disconnect", TestCancelOnDisconnect)
		t.Run("unread response", TestUnreadResponseIsEvicted)
	}
}

// A connection over the limit gets an alert that every TLS library reports as such.
func TestRefusalWithTLS(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("connections are refused on Linux only")
	}
	withTLS(t)
	started, proceed := make(chan struct{}), make(chan struct{})
	l, messages := serve(t, listenTCP(t), 1, func(http.ResponseWriter, *http.Request) {
		started <- struct{}{}
		<-proceed
	})
	first := dial(t, l)
	io.WriteString(first, get)
	<-started
	for range 20 {
		_, err := io.WriteString(dial(t, l), get)
		if e, ok := errors.AsType[*net.OpError](err); !ok || e.Op != "remote error" ||
			!strings.Contains(e.Error(), "internal error") {
			t.Fatalf("refused with %v", err)
		}
	}
	if !strings.Contains(messages.String(), "refused connections") {
		t.Errorf("log: %s", messages)
	}
	close(proceed)
	if status := receive(t, first); status != 200 {
		t.Errorf("status %d", status)
	}
}

// plainDial is dial without TLS.
func plainDial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c := dial(t, l)
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}

// A handshake that hangs, at whatever point, is evicted in favour of another client.
func TestHandshakeIsEvicted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("unread bytes can't be seen")
	}
	withTLS(t)
	hello := clientHello(t)
	for name, sent := range map[string]string{"nothing": "", "a byte": hello[:1], "half": hello[:100], "hello": hello} {
		t.Run(name, func(t *testing.T) {
			l, _ := serve(t, listenTCP(t), 1, func(http.ResponseWriter, *http.Request) {})
			hanging := plainDial(t, l)
			io.WriteString(hanging, sent)
			eventually(t, "a connection", func() bool { return l.count.Load() == 1 })
			eventually(t, "a response to another client", func() bool { return send(t, dial(t, l), get) == 200 })
			if _, err := io.Copy(io.Discard, hanging); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the connection is open: %v", err)
			}
		})
	}
}

// clientHello is the first message of a handshake.
func clientHello(t *testing.T) string {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	go tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake()
	b := make([]byte, 4096)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	return string(b[:n])
}

// A handshake ends with the time for the first head.
func TestHandshakeTimeout(t *testing.T) {
	withTLS(t)
	cfg, messages := testConfig(10)
	l := New(listenTCP(t), cfg)
	s := &http.Server{ReadHeaderTimeout: 50 * time.Millisecond, ReadTimeout: time.Hour, WriteTimeout: time.Hour}
	defer s.Close()
	go l.Serve(s)
	for _, sent := range []string{"", clientHello(t)} {
		c := plainDial(t, l)
		io.WriteString(c, sent)
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("after %d bytes: %v", len(sent), err)
		}
	}
	eventually(t, "no connection", func() bool { return l.count.Load() == 0 })
	if log := messages.String(); log != "" {
		t.Errorf("log: %s", log)
	}
}

// A client without TLS gets a response that says so.
func TestWithoutTLS(t *testing.T) {
	withTLS(t)
	l, messages := serve(t, listenTCP(t), 10, func(http.ResponseWriter, *http.Request) { t.Error("handled") })
	for _, sent := range []string{get, "nonsense\r\n\r\n"} {
		c := plainDial(t, l)
		io.WriteString(c, sent)
		if text, err := io.ReadAll(c); err != nil || string(text) != "error 426" {
			t.Errorf("after %.10q: got %q, %v", sent, text, err)
		}
		c.Close()
	}
	// One that does not trust the certificate tells why, and that is logged.
	c := tls.Client(plainDial(t, l), &tls.Config{ServerName: "x"})
	if err := c.Handshake(); err == nil {
		t.Error("the certificate is trusted")
	}
	eventually(t, "the log", func() bool {
		return strings.Contains(messages.String(), "TLS handshake failed from "+c.LocalAddr().String()+
			" reason remote error: tls: bad certificate")
	})
}

// A drain lets requests in flight end, tells idle clients with an alert, and does not wait for handshakes.
func TestDrainWithTLS(t *testing.T) {
	withTLS(t)
	started, proceed := make(chan struct{}), make(chan struct{})
	var l *Listener
	l, _ = serve(t, listenTCP(t), 10, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			started <- struct{}{}
			<-proceed
			w.Header().Set("Connection", "close")
		}
	})
	hanging, idle, busy := plainDial(t, l), dial(t, l), dial(t, l)
	if status := send(t, idle, get); status != 200 {
		t.Fatalf("status %d", status)
	}
	io.WriteString(busy, strings.Replace(get, "/", "/slow", 1))
	<-started
	drained := make(chan int)
	go func() { drained <- l.Drain(t.Context()) }()
	if alert, err := io.ReadAll(idle.(*tls.Conn).NetConn()); err != nil || len(alert) == 0 {
		t.Errorf("an idle client got %q, %v, want an alert and the end", alert, err)
	}
	if _, err := hanging.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a handshake that hangs: %v", err)
	}
	close(proceed)
	if status := receive(t, busy); status != 200 {
		t.Errorf("status %d", status)
	}
	if cut := <-drained; cut != 0 {
		t.Errorf("Drain() = %d", cut)
	}
}
