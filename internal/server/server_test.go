package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
	"plantstore/internal/server"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// TestMixedLoad runs everything at once in one process, under the race detector in make test, which does not cover the
// code of SQLite itself: creates of new and of the same ids, reads, edits, clients that disconnect, and a stop.
func TestMixedLoad(t *testing.T) {
	s := start(t, server.Config{Config: httpapi.Config{AccessLog: httpapi.LogAll}}, openStorage(t))
	var clients sync.WaitGroup
	end := time.Now().Add(time.Second)
	for n := range 16 {
		clients.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				id := (n/2)*1_000_000 + i // two clients share each id
				path, method, body := fmt.Sprintf("/plants/%d", id), "GET", ""
				switch i % 5 {
				case 0, 1:
					path, method, body = "/plants", "POST", fmt.Sprintf(`{"id":%d,"name":"n%d"}`, id, n)
				case 2:
					method, body = "PUT", `{"name":"other"}`
				case 3:
					method = "DELETE"
				}
				ctx, cancel := context.WithCancel(context.Background())
				if i%7 == 0 {
					time.AfterFunc(time.Millisecond, cancel) // disconnects
				}
				status, err := s.send(ctx, method, path, body)
				cancel()
				if err == nil && (status >= 500 || status < 200) {
					t.Errorf("%s %s: %d", method, path, status)
				}
			}
		})
	}
	clients.Wait()
	if err := s.end(t); err != nil {
		t.Errorf("Run() = %v", err)
	}
	if strings.Contains(s.log.String(), "panic") {
		t.Error("the log has a panic")
	}
	s.logged(t, `"stopping","drain":"5s"`)
	s.logged(t, `"stopped"`)
}

// A service that can't start returns the reason and leaves no socket open.
func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	st := openStorage(t)
	for name, c := range map[string]struct {
		change func(*server.Config)
		want   string
	}{
		"address": {func(c *server.Config) { c.Listen, c.Public = taken.Addr().String(), nil },
			"--listen " + taken.Addr().String() + ": the port is in use by another program; choose another"},
		"address of health": {func(c *server.Config) { c.OpsListen, c.Ops = taken.Addr().String(), nil },
			"--ops-listen " + taken.Addr().String() + ": the port is in use by another program; choose another"},
		"no address": {func(c *server.Config) { c.Listen, c.Public = "127.0.0.1:http:", nil },
			"--listen 127.0.0.1:http:: address 127.0.0.1:http:: too many colons in address"},
		"base URL":    {func(c *server.Config) { c.BaseURL = "plants.example" }, `base URL "plants.example" must be`},
		"fixed token": {func(c *server.Config) { c.Token = "short" }, "the fixed token must have 16 or more"},
	} {
		public, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ops, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := server.Config{Public: public, Ops: ops, Out: io.Discard, Log: slog.New(slog.DiscardHandler)}
		c.change(&cfg)
		if err := server.Run(t.Context(), cfg, st); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Run() = %v, want %s", name, err, c.want)
		}
		if conn, err := net.Dial("tcp", public.Addr().String()); err == nil && cfg.Public != nil {
			conn.Close()
			t.Errorf("%s: the service still listens", name)
		}
		public.Close()
		ops.Close()
	}
}

// A server that fails ends the service, and Run returns the reason.
func TestServerFails(t *testing.T) {
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, server.Config{Public: public, OpsListen: "off"}, openStorage(t))
	public.Close()
	select {
	case err := <-s.ended:
		if s.ended <- nil; err == nil || !strings.HasPrefix(err.Error(), "serve: ") {
			t.Errorf("Run() = %v", err)
		}
	case <-time.After(waitLimit):
		t.Error("the service has not stopped")
	}
}

// slowStore is a store whose commits and lists take as long as the test wants.
type slowStore struct {
	storage.Storage
	entered  chan context.Context
	release  chan struct{}
	returned atomic.Bool
}

func (s *slowStore) CreateBatch(ctx context.Context, plants []plant.Record) ([]plant.Outcome, error) {
	s.entered <- ctx
	<-s.release
	s.returned.Store(true)
	return s.Storage.CreateBatch(ctx, plants)
}

func (s *slowStore) List(ctx context.Context, _ string, _ *int64, _ int) ([]plant.Plant, error) {
	s.entered <- ctx
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.release:
		return nil, nil
	}
}

// A create that is cut off at the end of the drain is still committed before Run returns: the caller closes the store.
func TestRunWaitsForCommits(t *testing.T) {
	st := &slowStore{Storage: openStorage(t), entered: make(chan context.Context, 1), release: make(chan struct{})}
	s := start(t, server.Config{Drain: 10 * time.Millisecond}, st)
	go s.send(context.Background(), "POST", "/plants", `{"id":1,"name":"x"}`)
	<-st.entered
	time.AfterFunc(300*time.Millisecond, func() { close(st.release) })
	err := s.end(t)
	if !st.returned.Load() {
		t.Error("Run() returned during a commit")
	}
	if err == nil || err.Error() != "stopped after 10ms; requests cut off: 1" {
		t.Errorf("Run() = %v", err)
	}
}

// A search ends when its client disconnects, and not before.
func TestAbandonedReads(t *testing.T) {
	st := &slowStore{Storage: openStorage(t), entered: make(chan context.Context, 1), release: make(chan struct{})}
	s := start(t, server.Config{}, st)
	abandon(t, s, st)
	wantCounted(t, s, `error_type="",http_request_method="GET",http_response_status_code="499",http_route="/plants"} 1`)
}

// wantCounted waits until a series of the metric of requests is counted.
func wantCounted(t *testing.T, s *running, series string) {
	t.Helper()
	metrics := ""
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		response, err := http.Get(s.health + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if metrics = string(body); strings.Contains(metrics, "http_server_request_duration_seconds_count{"+series) {
			return
		}
	}
	t.Errorf("no series %s in %s", series, metrics)
}

// abandon sends slow searches of two tokens to a server and disconnects one of the clients.
func abandon(t *testing.T, s *running, st *slowStore) {
	other, otherCredential := token.New("other", "main", token.Read, time.Now(), time.Time{})
	if err := st.AddToken(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	results := make(chan string, 2)
	read := func(ctx context.Context, credential string) context.Context {
		go func() {
			status, err := s.send(ctx, "GET", "/plants?q=x", "", "Authorization", "Bearer "+credential)
			results <- fmt.Sprint(status, errors.Is(err, context.Canceled))
		}()
		return <-st.entered
	}
	ctx, disconnect := context.WithCancel(t.Context())
	abandoned, stays := read(ctx, credential), read(t.Context(), otherCredential)
	disconnect()
	if got := <-results; got != "0 true" {
		t.Errorf("the client that disconnects: %s", got)
	}
	select {
	case <-abandoned.Done():
	case <-time.After(waitLimit):
		t.Error("the client has disconnected, its read was not cancelled")
	}
	if stays.Err() != nil {
		t.Error("the client is connected, its read was cancelled")
	}
	close(st.release)
	if got := <-results; got != "200 false" {
		t.Errorf("the client that stays: %s", got)
	}
}

// protocolErrors are requests to which net/http or its ServeMux responds by itself, and the number of the Error that is
// sent instead on the public port and on the health port.
var protocolErrors = []struct {
	sent        string
	public, ops int
}{
	{"nonsense\r\n\r\n", 40024, 40024},
	{"GET /livez HTTP/1.1\nHost: x\r\n\r\n", 40024, 40024},
	{"GET /livez HTTP/1.1\r\n\r\n", 40024, 40024},
	{"GET /livez HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 40024, 40024},
	{"GET /livez HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", 40024, 40024},
	{"\x16\x03\x01\x00\xc8\r\n\r\n", 40024, 40024}, // TLS
	{"GET /livez HTTP/9.9\r\nHost: x\r\n\r\n", 50501, 50501},
	{"GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 50101, 50101},
	{"GET /livez HTTP/1.1\r\nX: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", 43101, 43101},
	{"GET /livez HTTP/1.1\r\nHost: x\r\nExpect: x\r\n\r\n", 40030, 40030},
	{"POST /plants HTTP/1.0\r\nExpect: x\r\n\r\n", 40030, 40030},
	{"POST /plants HTTP/1.0\r\nConnection: keep-alive\r\nExpect: x\r\nContent-Length: 2\r\n\r\n{}", 40030, 40030},
	{"POST /plants HTTP/1.1\r\nHost: x\r\nExpect: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 40030, 40030},
	{"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40402},
	{"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40402},
	{"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n", 40402, 40402},
	{"CONNECT /livez HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40501},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 40402, 40402},
	{"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40402},
	{"GET /x/../livez HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40402},
	{"GET /livez/ HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40402},
	{"POST /livez HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40501},
	{"OPTIONS /readyz HTTP/1.1\r\nHost: x\r\n\r\n", 40402, 40501},
}

// Responses that net/http sends by itself are Errors, and they are logged as requests unless the access log is off.
func TestProtocolErrors(t *testing.T) {
	for _, access := range []httpapi.AccessLog{httpapi.LogAll, httpapi.LogNone} {
		s := start(t, server.Config{Config: httpapi.Config{AccessLog: access}}, openStorage(t))
		for _, e := range protocolErrors {
			wantProtocolError(t, s, s.url, e.sent, e.public, access)
			wantProtocolError(t, s, s.health, e.sent, e.ops, access)
		}
		if err := s.end(t); err != nil {
			t.Error(err)
		}
	}
}

func wantProtocolError(t *testing.T, s *running, url, sent string, want int, access httpapi.AccessLog) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(waitLimit))
	io.WriteString(c, sent)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Errorf("%.100q: %v", sent, err)
		return
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want/100 ||
		!strings.HasPrefix(string(body), fmt.Sprintf(`{"error":%d,`, want)) ||
		response.Header.Get("Content-Type") != "application/json" ||
		response.Header.Get("Cache-Control") != "no-store" || !response.Close && want/100 != 404 && want/100 != 405 {
		t.Errorf("%.100q: %d %s %v, %v", sent, response.StatusCode, body, response.Header, err)
	}
	id := response.Header.Get("X-Request-Id")
	if access == httpapi.LogNone {
		if strings.Contains(s.log.String(), id) {
			t.Errorf("%.100q is logged", sent)
		}
	} else if line := s.logged(t, id); !strings.Contains(line, fmt.Sprintf(`"status":%d,`, want/100)) ||
		!strings.Contains(line, fmt.Sprintf(`"error":%d,`, want)) ||
		!strings.Contains(line, `"from":"`+c.LocalAddr().String()) {
		t.Errorf("%.100q is logged as %s", sent, line)
	}
}

// Headers of up to 32 KiB are accepted. net/http adds 4 KiB to the limit.
func TestHeaderLimit(t *testing.T) {
	s := start(t, server.Config{}, openStorage(t))
	for size, want := range map[int]int{31 << 10: 200, 40 << 10: 431} {
		status, err := s.send(t.Context(), "GET", "/plants", "", "X-Filler", strings.Repeat("x", size))
		if err != nil || status != want {
			t.Errorf("a header of %d bytes: status %d, %v, want %d", size, status, err, want)
		}
	}
}
