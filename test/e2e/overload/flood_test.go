package overload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/ledger"
)

// flood is clients that create plants in a process of their own, which has another processor than the service. Each
// sends again as soon as it has its response. One whose connection was closed waits for the second that Retry-After
// asks for, and up to another one, so that demand is many times what the service can serve.
type flood struct {
	URL, Token   string
	Clients      int
	Warm, Window time.Duration
	Visits       bool // A client closes its connection after each response.
	Urgent       bool // The process has priority over others, to measure exactly.
}

// report is what the clients of a flood have experienced.
type report struct {
	Created     int          // plants that were acknowledged
	Bad         int          // requests without a response, or with one that is neither a 200 nor a refusal
	Reason      string       // of the first of these
	Evicted     int          // requests on connections that the service could close without a response
	Unconnected int          // connections that were not established in a second
	Seconds     float64      // of the window
	Served      ledger.Times // how long acknowledgements in the window took
	Refused     ledger.Times // how long refusals in the window took, from before the connection was opened

	mu sync.Mutex
}

func (r *report) rate() float64 { return float64(len(r.Served)) / r.Seconds }

func (r *report) String() string {
	const us = time.Microsecond
	return fmt.Sprintf("%.0f creates/s (p50 %v, p99 %v), %d refused (p50 %v, p99 %v); %d not connected, "+
		"%d evicted, %d bad %s",
		r.rate(), r.Served.Quantile(0.5).Round(us), r.Served.Quantile(0.99).Round(us), len(r.Refused),
		r.Refused.Quantile(0.5).Round(us), r.Refused.Quantile(0.99).Round(us), r.Unconnected, r.Evicted,
		r.Bad, r.Reason)
}

const floodVariable = "PLANTSTORE_TEST_FLOOD"

// send runs the clients in another process: this program, whose TestMain calls runFlood.
func (f flood) send(t *testing.T, s *testkit.Server) *report {
	t.Helper()
	f.URL, f.Token = s.URL, s.Token
	options, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"taskset", "-c", "1", os.Args[0]}
	if f.Urgent {
		args = append([]string{"chrt", "--fifo", "1"}, args...)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), floodVariable+"="+string(options))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	r := &report{}
	if err := errors.Join(err, json.Unmarshal(out, r)); err != nil {
		t.Errorf("a flood: %v %.200s", err, out)
	}
	return r
}

// runFlood is the other process.
func runFlood(options string) error {
	var f flood
	if err := json.Unmarshal([]byte(options), &f); err != nil {
		return err
	}
	r := &report{Seconds: f.Window.Seconds()}
	begin := time.Now().Add(f.Warm)
	var clients sync.WaitGroup
	for range f.Clients {
		clients.Go(func() {
			for time.Now().Before(begin.Add(f.Window)) {
				f.connect(r, begin)
				time.Sleep(time.Second + rand.N(time.Second))
			}
		})
	}
	clients.Wait()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// connect sends creates until the connection is closed or the window is over.
func (f flood) connect(r *report, begin time.Time) {
	start, end := time.Now(), begin.Add(f.Window)
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(f.URL, "http://"), time.Second)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Unconnected++
		return
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	// The service may close a new connection at once, because it refuses at most 512 with a response at a time. Later it
	// may close one of a token with more than half of all whose client has not sent for as long as patience. On a busy
	// machine a client may be so slow that it cannot know this in time.
	patience := time.Duration(0)
	for waits := start; start.Before(end); start = time.Now() {
		conn.SetDeadline(start.Add(15 * time.Second))
		io.WriteString(conn, creating("Authorization: Bearer "+f.Token+"\r\n")) // If it fails, there is no response.
		mayClose := time.Since(waits) >= patience
		response, err := http.ReadResponse(in, nil)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(response.Body)
		}
		r.add(response, string(body), err, mayClose, start, time.Now().After(begin) && time.Now().Before(end))
		if err != nil || response.Close || f.Visits {
			return
		}
		waits, patience = start, 100*time.Millisecond
	}
}

// add records the response to a request. There may be none if the service could close the connection.
func (r *report) add(response *http.Response, body string, err error, mayClose bool, start time.Time, counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var times *ledger.Times
	switch {
	case err != nil && mayClose:
		r.Evicted++
		return
	case err == nil && response.StatusCode == 200 && strings.TrimSpace(body) == `{"name":"x"}`:
		r.Created++
		times = &r.Served
	case err == nil && response.StatusCode == 503 && response.Header.Get("Retry-After") == "1" &&
		strings.HasPrefix(body, `{"error":50301,`):
		times = &r.Refused
	default:
		if r.Bad++; r.Bad == 1 {
			r.Reason = fmt.Sprintf("%v %.200s, %v", response, body, err)
		}
		return
	}
	if counts {
		*times = append(*times, time.Since(start))
	}
}
