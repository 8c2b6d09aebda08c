//go:build linux

package overload

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

// connectIdle opens connections that send nothing. They are closed at the end of the test.
func connectIdle(t *testing.T, s *testkit.Server, n int) {
	t.Helper()
	address := strings.TrimPrefix(s.URL, "http://")
	var dials sync.WaitGroup
	var failed atomic.Int64
	for worker := range 8 {
		dials.Go(func() {
			for i := worker; i < n; i += 8 {
				c, err := net.DialTimeout("tcp", address, testkit.Deadline)
				if err != nil {
					failed.Add(1)
					continue
				}
				t.Cleanup(func() { c.Close() })
			}
		})
	}
	dials.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d connections failed", failed.Load(), n)
	}
}

// workers are clients that work until they are stopped.
type workers struct {
	done atomic.Int64 // pairs of a create and a read
	stop chan struct{}
	all  sync.WaitGroup
}

func startWorkers(t *testing.T, s *testkit.Server, n int) *workers {
	w := &workers{stop: make(chan struct{})}
	for i := range n {
		one := &worker{t: t, s: s, http: &http.Client{Timeout: testkit.Deadline, Transport: &http.Transport{}}}
		w.all.Go(func() { one.work(1+i*1_000_000, w.stop, &w.done) })
	}
	return w
}

// end stops the clients.
func (w *workers) end() {
	close(w.stop)
	w.all.Wait()
}

// rate is how many pairs a second succeed now.
func (w *workers) rate() float64 {
	start, before := time.Now(), w.done.Load()
	time.Sleep(time.Second) // the time that is measured
	return float64(w.done.Load()-before) / time.Since(start).Seconds()
}

// wantProgress fails the test unless the clients are at least a twentieth as fast as they were alone. The machine may
// pause, so one second of several is enough.
func (w *workers) wantProgress(t *testing.T, alone float64) {
	t.Helper()
	var rates []float64
	for range 5 {
		rates = append(rates, w.rate())
		if now := rates[len(rates)-1]; now > 0 && now >= alone/20 {
			t.Logf("%.0f creates and reads a second, and %.0f without the connections", rates, alone)
			return
		}
	}
	t.Errorf("%.0f creates and reads a second, and %.0f without the connections", rates, alone)
}

// worker is a client that creates and reads plants and expects every request to succeed, after retries of refusals.
type worker struct {
	t    *testing.T
	s    *testkit.Server
	http *http.Client
	last time.Time // when the previous request was sent
}

// work creates and reads plants until stop is closed, sometimes on a new connection, and counts the pairs that succeed.
func (w *worker) work(first int, stop chan struct{}, done *atomic.Int64) {
	defer w.http.CloseIdleConnections()
	for id := first; ; id++ {
		if id%50 == 0 {
			w.http.CloseIdleConnections()
		}
		if !w.send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"Fern"}`, id)) ||
			!w.send("GET", "/plants?limit=2&after="+strconv.Itoa(id-1), "") {
			return
		}
		done.Add(1)
		select {
		case <-stop:
			return
		default:
		}
	}
}

// send sends a request until it succeeds, and reports whether it did. A refusal is retried.
func (w *worker) send(method, path, body string) bool {
	for start := time.Now(); time.Since(start) < testkit.Deadline; time.Sleep(10 * time.Millisecond) {
		response, retry, err := w.try(method, path, body)
		switch {
		case err != nil && retry:
		case err != nil:
			w.t.Errorf("%s: %v", method, err)
			return false
		case response.Status == 503 && response.Number() == 50301:
		case response.Status != 200:
			w.t.Errorf("%s: %d %s", method, response.Status, response.Body)
			return false
		default:
			return true
		}
	}
	w.t.Errorf("%s: refused for %v", method, testkit.Deadline)
	return false
}

// try sends a request once. Two errors are worth a retry: the connection was refused before the request was written,
// and the server closed a connection that was idle for long because this process had paused.
func (w *worker) try(method, path, body string) (a testkit.Response, retry bool, err error) {
	r, err := http.NewRequest(method, w.s.URL+path, strings.NewReader(body))
	if err != nil {
		return a, false, err
	}
	r.Header.Set("Authorization", "Bearer "+w.s.Token)
	r.Header.Set("Content-Type", "application/json")
	var written, stale atomic.Bool
	before := w.last
	w.last = time.Now()
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(g httptrace.GotConnInfo) { stale.Store(g.Reused) },
		WroteRequest: func(w httptrace.WroteRequestInfo) {
			written.Store(w.Err == nil)
			stale.Store(stale.Load() && time.Since(before) > testkit.LongIdle)
		},
	}))
	response, err := w.http.Do(r)
	if err != nil {
		return a, !written.Load() || stale.Load(), err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return testkit.Response{Status: response.StatusCode, Header: response.Header, Body: string(text)}, false, err
}

// Ten thousand idle connections take no more files and memory than the limit on connections allows, and every request
// of a client that works meanwhile succeeds.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	const idle = 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < idle+500 {
		testkit.Unavailable(t, "%d connections need as many files, and the limit is %d", idle, files.Cur)
	}
	s := startLimited(t, 0, "", "--max-conns", "1000")
	w := startWorkers(t, s, 1)
	alone := w.rate()
	memory := s.Memory(t, "VmRSS")

	connectIdle(t, s, idle)
	testkit.WaitFor(t, "the server to close the refused connections", func() bool { return s.OpenFiles(t) <= 1200 })
	open := s.OpenFiles(t)
	grown := s.Memory(t, "VmRSS") - memory
	w.wantProgress(t, alone)
	w.end()
	t.Logf("%d MiB and %d files of the server with %d connections", grown>>20, open, idle)
	if open < 500 {
		t.Errorf("the server has %d files open, want about 1000", open)
	}
	if grown > 128<<20 { // mostly garbage: each connection is admitted before another replaces it
		t.Errorf("%d connections take %d MiB, want at most 128", idle, grown>>20)
	}
}

// With 64 files the service always has some for its database, and evicts idle connections for clients that work.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	s := startLimited(t, 0, "ulimit -n 64;")
	w := startWorkers(t, s, 4)
	alone := w.rate()
	connectIdle(t, s, 300)
	var most int
	// After a second idle connections may be evicted.
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		most = max(most, s.OpenFiles(t))
	}
	w.wantProgress(t, alone)
	w.end()
	t.Logf("at most %d files", most)
	if most < 32 || most > 60 {
		t.Errorf("at most %d files are open, want nearly all but some for the database", most)
	}
	s.WaitReady(t, true)
	for _, sign := range []string{`"error":5000`, `"error":5030[2-9]`, "unable to open", "too many open files"} {
		if found := regexp.MustCompile(`.*` + sign + `.*`).FindString(s.Stderr.String()); found != "" {
			t.Errorf("a failure without free files: %s", found)
		}
	}
	var took time.Duration
	for range 3 { // The machine may pause.
		if took = wantIdleWhileFull(t, s); took < 20*time.Second {
			return
		}
	}
	t.Errorf("slow requests were evicted after %v, want it clearly before the read timeout of 30 s", took)
}

// wantIdleWhileFull fills the server with requests that never end. It refuses others without using the processor,
// until the slow requests are evicted. It returns how long that took.
func wantIdleWhileFull(t *testing.T, s *testkit.Server) time.Duration {
	t.Helper()
	start := time.Now()
	read := func() string {
		c := s.Dial(t)
		defer c.Close()
		// A refusal may arrive before the request is sent.
		io.WriteString(c, "GET /plants/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
			"Authorization: Bearer "+s.Token+"\r\n\r\n")
		all, _ := io.ReadAll(c)
		return string(all)
	}
	var refusal string
	rounds, refusals := 0, 0
	// A single refusal does not mean that the server is full: idle connections are evicted a few at a time. Slow
	// requests are evicted only after two seconds. A slow machine may need longer for five refusals.
	testkit.WaitFor(t, "refusals alone", func() bool {
		for range 10 {
			c := s.Dial(t)
			t.Cleanup(func() { c.Close() })
			io.WriteString(c, "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.Token+"\r\n"+
				"Content-Type: application/json\r\nContent-Length: 30\r\n\r\n{")
		}
		rounds++
		refusals++
		if refusal = read(); !strings.HasPrefix(refusal, "HTTP/1.1 503 ") {
			refusals = 0
		}
		return refusals == 5 || refusals > 0 && rounds > 50
	})
	if !strings.Contains(refusal, "\r\nRetry-After: 1\r\n") || !strings.Contains(refusal, `{"error":50301,`) {
		t.Errorf("the refusal is %q", refusal)
	}
	idle := func() bool {
		start, before := time.Now(), s.CPUTime(t)
		time.Sleep(500 * time.Millisecond) // the time that is measured
		return s.CPUTime(t)-before <= time.Since(start)/10
	}
	for try := 1; !idle(); try++ { // At first it still closes the refused connections.
		if try == 5 {
			t.Error("a full server without requests uses more than a tenth of a processor")
			break
		}
	}
	testkit.WaitFor(t, "slow requests to be evicted", func() bool { return strings.HasPrefix(read(), "HTTP/1.1 200 ") })
	return time.Since(start)
}

// Bodies that together are larger than memory are refused in time, and those that are accepted fit into it.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := startLimited(t, 256<<20, "", "--max-body", "1048576")
	const clients = 300
	body := `{"id":1,"name":"` + strings.Repeat("x", 1<<20-100) + `"}`
	head := fmt.Sprintf("POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", s.Token, len(body))
	var sending, started sync.WaitGroup
	var stored, refused atomic.Int64
	started.Add(clients)
	for range clients {
		c := s.Dial(t)
		sending.Go(func() {
			defer c.Close()
			io.WriteString(c, head+body[:len(body)-1]) // A refused connection may be closed during this.
			started.Done()
			started.Wait() // All requests are in flight.
			io.WriteString(c, body[len(body)-1:])
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("no response: %v", err)
				return
			}
			text, _ := io.ReadAll(response.Body)
			switch {
			case response.StatusCode == 200:
				stored.Add(1)
			case response.StatusCode == 503 && strings.Contains(string(text), `{"error":50301,`):
				refused.Add(1)
			default:
				t.Errorf("response %d %.200s", response.StatusCode, text)
			}
		})
	}
	sending.Wait()
	high := s.Memory(t, "VmHWM")
	t.Logf("%d stored, %d refused; memory at most %d MiB", stored.Load(), refused.Load(), high>>20)
	if stored.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d stored and %d refused, want some of each", stored.Load(), refused.Load())
	}
	if high > 200<<20 {
		t.Errorf("memory reached %d MiB, want at most 200", high>>20)
	}
	testkit.WantResponse(t, "a create afterwards", s.Create(t, `{"id":2,"name":"Fern"}`), 200, `{"name":"Fern"}`)
}
