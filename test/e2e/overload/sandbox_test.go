//go:build linux

package overload

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// Clients that create sandboxes as fast as they can, fill them and their journals, and delay requests, keep out no
// client with a token of an operator, and take a bounded memory.
func TestHostileSandboxes(t *testing.T) {
	testkit.Long(t)
	testkit.NotWithRace(t)
	for _, addresses := range []int{1, 200} {
		t.Run(fmt.Sprint(addresses), func(t *testing.T) {
			lasts, want, plants := *hostileFor, 99, 16 // percent; a mebibyte
			if lasts == 0 {
				lasts, want, plants = 2*time.Second, 1, 1
			}
			args := []string{"--access-log", "off", "--sandbox"}
			if addresses > 1 {
				args = append(args, "--sandbox-rate", "1000/s") // so that each gets its share, however fast the service is
			}
			s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), args...)
			kept := startKept(t, s)
			s.Do(t, "GET", "/plants", "") // so that the token of the honest clients is cached
			h := &visitors{url: s.URL, addresses: addresses, plants: plants, stopped: make(chan struct{})}
			stop := h.start()
			h.filled.Wait()
			probes, failed, p99 := measureHonest(t, s, lasts, want)
			stop()
			_, l := kept()
			wantServed(t, "requests on kept connections", l, want)
			high := s.Memory(t, "VmHWM")
			t.Logf("%d sandboxes, %d requests, %d delayed; %d of %d health checks failed; p99 %v; memory at most %d MiB",
				h.created.Load(), h.sent.Load(), h.delayed.Load(), failed, probes, p99, high>>20)
			if high > 256<<20 {
				t.Errorf("memory reached %d MiB, want at most 256", high>>20)
			}
			if h.created.Load() == 0 || h.delayed.Load() == 0 {
				t.Error("there was no attack")
			}
		})
	}
}

// visitors are clients without a token. They fill as many sandboxes as they get, then all journals at the same time,
// and then create more and delay requests.
type visitors struct {
	url                    string
	addresses              int
	plants                 int // of each sandbox
	filled                 sync.WaitGroup
	stopped                chan struct{}
	created, sent, delayed atomic.Int64
}

const (
	visitorClients = 200
	boxesOfVisitor = 5 // With 200 addresses, they have all 1,000.
)

// start starts the clients. stop disconnects them.
func (v *visitors) start() (stop func()) {
	v.filled.Add(visitorClients)
	var clients sync.WaitGroup
	for i := range visitorClients {
		clients.Go(func() {
			x := &visitor{visitors: v, ip: fmt.Sprintf("127.1.0.%d", 1+i%v.addresses)}
			defer func() { reset(x.conn) }()
			for range boxesOfVisitor {
				x.fill()
			}
			v.filled.Done()
			v.filled.Wait()
			for _, credential := range x.boxes {
				x.exchange(getting("/plants/1", "X: "+strings.Repeat("<", 32<<10)+"\r\n")(credential), nil)
			}
			for n := 0; !isClosed(v.stopped); n++ {
				x.exchange("POST /sandboxes HTTP/1.1\r\nHost: x\r\n\r\n", nil)
				if len(x.boxes) > 0 {
					x.delay(x.boxes[n%len(x.boxes)])
				}
			}
		})
	}
	return func() {
		close(v.stopped)
		clients.Wait()
	}
}

// visitor is one client, with the credentials of its sandboxes.
type visitor struct {
	*visitors
	ip    string
	conn  net.Conn
	in    *bufio.Reader
	boxes []string
}

// exchange sends a request and decodes its response. It returns 0 if there is none.
func (x *visitor) exchange(request string, to any) (status int) {
	if x.conn == nil {
		c, err := dialFrom(x.ip, x.url)
		if err != nil {
			return 0
		}
		x.conn, x.in = c, bufio.NewReader(c)
	}
	x.sent.Add(1)
	x.conn.SetDeadline(time.Now().Add(testkit.Deadline))
	io.WriteString(x.conn, request) // If it fails, there is no response.
	response, err := http.ReadResponse(x.in, nil)
	if err == nil {
		status = response.StatusCode
		var text []byte
		if text, err = io.ReadAll(response.Body); to != nil {
			json.Unmarshal(text, to)
		}
	}
	if err != nil || response.Close {
		reset(x.conn)
		x.conn = nil
	}
	return status
}

// fill creates a sandbox, stores a mebibyte in it, and sends small requests.
func (x *visitor) fill() {
	var got struct {
		Token string
		Error int
	}
	for ; got.Token == "" && got.Error != 42904 && got.Error != 50307; time.Sleep(20 * time.Millisecond) {
		x.exchange("POST /sandboxes HTTP/1.1\r\nHost: x\r\n\r\n", &got)
	}
	if got.Token == "" {
		return
	}
	x.created.Add(1)
	credential := "Authorization: Bearer " + got.Token + "\r\n"
	x.boxes = append(x.boxes, credential)
	for id := range x.plants {
		plant := fmt.Sprintf(`{"id":%d,"name":%q}`, id, strings.Repeat("<", 64_000))
		x.exchange(incompleteHead+credential+"Content-Type: application/json\r\n"+
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(plant), plant), nil)
	}
	x.exchange("DELETE /requests HTTP/1.1\r\nHost: x\r\n"+credential+"\r\n", nil)
	for range 60 {
		x.exchange(getting("/plants/1", "")(credential), nil)
	}
}

// delay asks for a delayed response.
func (x *visitor) delay(credential string) {
	if status := x.exchange(getting("/plants/1", "Prefer: delay=200\r\n")(credential), nil); status/100 == 2 {
		x.delayed.Add(1)
	}
}

// While 1,000 full sandboxes expire, creates keep nine tenths of their rate. The load alternates between a service
// where they expire and one where they do not, while the other is stopped.
func TestExpiryGoodput(t *testing.T) {
	if *hostileFor == 0 {
		t.Skip("make hostile runs it")
	}
	const rounds, window, least = 60, 250 * time.Millisecond, 0.9
	expiring, other := startFull(t, "1"), startFull(t, "10000000000000")
	rate := func(s *testkit.Server) float64 {
		s.Signal(syscall.SIGCONT)
		defer s.Freeze()
		start := time.Now()
		stop := attack{32, 1, testkit.Deadline, creating, true}.start(s.URL, "Authorization: Bearer "+s.Token+"\r\n")
		time.Sleep(window)
		return float64(stop()) / time.Since(start).Seconds()
	}
	other.Freeze()
	var ratios []float64
	for range rounds {
		ratios = append(ratios, rate(expiring)/rate(other))
	}
	slices.Sort(ratios)
	t.Logf("creates while sandboxes expire: %.3f of their rate, the median of %.2f", ratios[rounds/2], ratios)
	if ratios[rounds/2] < least {
		t.Errorf("creates keep %.3f of their rate, want %.1f", ratios[rounds/2], least)
	}
}

// startFull starts a service with 1,000 full sandboxes.
func startFull(t *testing.T, expires string) *testkit.Server {
	t.Helper()
	db := filepath.Join(t.TempDir(), "plants.db")
	token := testkit.IssueToken(t, db, "--name", "busy")
	testkit.Query(t, db, `
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
		INSERT INTO sandboxes SELECT 'sandbox:' || i, randomblob(32), 'empty', 1, `+expires+`, 1, 1000, 20000 FROM n;
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
		INSERT INTO plants SELECT s.store, i, 'Monstera deliciosa', NULL FROM sandboxes s, n`)
	s := testkit.Start(t, db, "--access-log", "off", "--sandbox")
	s.Token = token
	return s
}
