//go:build linux

package overload

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// workers is clients that work while the server has many idle connections: some keep their connections, others open one
// for each request.
type workers struct {
	kept, renewed         *ledger.Ledger
	stopKept, stopRenewed func()
}

func startWorkers(t *testing.T, s *testkit.Server) *workers {
	c := &workers{kept: ledger.New(), renewed: ledger.New()}
	c.stopKept = c.kept.Start(t, ledger.Options{Clients: 2}, s.Target())
	other := testkit.IssueToken(t, databaseOf(s), "--name", "other", "--store", "other")
	options := ledger.Options{Clients: 1, NewConns: true}
	c.stopRenewed = c.renewed.Start(t, options, testkit.Target{URL: s.URL, Token: other})
	return c
}

// wantProgress waits until all clients have been served, and checks that no request on a connection that its client
// keeps is lost.
func (c *workers) wantProgress(t *testing.T) {
	t.Helper()
	c.kept.Wait(t, 100)
	c.renewed.Wait(t, 100)
	c.stopKept()
	c.stopRenewed()
	t.Logf("responses on kept connections: %v, on new ones: %v", c.kept.Responses(), c.renewed.Responses())
	if n := c.kept.Responses()[ledger.None]; n > 0 {
		t.Errorf("%d requests got no response", n)
	}
}

// Ten thousand idle connections take no more files and memory than the limit on connections allows, and clients that
// work are served meanwhile.
func TestIdleConnections(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const idle = 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < idle+500 {
		testkit.Unavailable(t, "%d connections need as many files, and the limit is %d", idle, files.Cur)
	}
	s := startLimited(t, 0, "", "--max-conns", "1000")
	c := startWorkers(t, s)
	c.kept.Wait(t, 100)
	memory := s.Memory(t, "VmRSS")

	defer attack{idle, 1, testkit.Deadline, oneOf(""), false}.start(s.URL, "")()
	testkit.WaitFor(t, "the server to close the refused connections", func() bool { return s.OpenFiles(t) <= 1200 })
	open := s.OpenFiles(t)
	grown := s.Memory(t, "VmRSS") - memory
	c.wantProgress(t)
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
	testkit.Long(t)
	t.Parallel()
	s := startLimited(t, 0, "ulimit -n 64;")
	c := startWorkers(t, s)
	defer attack{300, 1, testkit.Deadline, oneOf(""), false}.start(s.URL, "")()
	var most int
	// After a second idle connections may be evicted.
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		most = max(most, s.OpenFiles(t))
	}
	c.wantProgress(t)
	if most < 32 || most > 60 {
		t.Errorf("at most %d files are open, want nearly all but some for the database", most)
	}
	s.WaitReady(t, true)
	for _, sign := range []string{`"error":5000`, `"error":5030[2-9]`, "unable to open", "too many open files"} {
		if found := regexp.MustCompile(`.*` + sign + `.*`).FindString(s.Stderr.String()); found != "" {
			t.Errorf("a failure without free files: %s", found)
		}
	}
}

// Bodies that together are larger than memory are refused in time, and those that are accepted fit into it.
func TestLargeBodies(t *testing.T) {
	testkit.Long(t)
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
