//go:build linux

package overload

import (
	"bufio"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/measure"
)

var hostileFor = flag.Duration("hostile", 0, "`duration` of each attack of TestFlood; 0: short, latencies unchecked")

const (
	incompleteHead = "POST /plants HTTP/1.1\r\nHost: x\r\n"
	incompleteBody = incompleteHead + "Content-Type: application/json\r\nContent-Length: 30\r\n\r\n{"
	largeBody      = incompleteHead + "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
	script         = "GET /docs/scalar.js HTTP/1.1\r\nHost: x\r\n\r\n" // more than a megabyte
)

// attacks are what the connections of each flood send. They never read a response.
var attacks = []struct {
	name      string
	sent      []string
	reopen    int // connections that are replaced each second, with -hostile
	addresses int
	tls       bool
}{
	{"idle", []string{""}, 1000, 1, false},
	{"incomplete headers", []string{incompleteHead}, 1000, 1, false},
	{"incomplete bodies", []string{incompleteBody}, 1000, 1, false},
	{"unread responses", []string{strings.Repeat(script, 8)}, 300, 1, false},
	{"incomplete headers, often reopened", []string{incompleteHead}, 4000, 1, false},
	{"all of these, often reopened", []string{"", incompleteHead, incompleteBody, strings.Repeat(script, 8)}, 4000, 1,
		false},
	{"large bodies, often reopened", []string{largeBody}, 4000, 1, false},
	{"incomplete headers from 1,000 addresses", []string{incompleteHead}, 4000, 1000, false},
	{"incomplete handshakes of TLS", []string{"", clientHello[:100], clientHello}, 4000, 1, true},
	{"incomplete handshakes of TLS from 1,000 addresses", []string{"", clientHello[:100], clientHello}, 4000, 1000, true},
}

// clientHello is the first message of a TLS handshake.
var clientHello = func() string {
	client, server := net.Pipe()
	defer server.Close()
	go tls.Client(client, &tls.Config{ServerName: "plants.example"}).Handshake()
	b := make([]byte, 4096)
	n, err := server.Read(b)
	if err != nil {
		panic(err)
	}
	return string(b[:n])
}()

// Thousands of connections without a token do not keep others out: a client at another address is served on its new
// connections, clients with a token keep their connections even at the hostile address, and health checks succeed.
func TestFlood(t *testing.T) {
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			conns, rate, lasts, args := 5000, attack.reopen, *hostileFor, []string(nil)
			if lasts == 0 {
				// One address opens more than 60 slots would take if each were free again after 100 ms.
				conns, rate, lasts = 500, 1200, 2*time.Second
				args = []string{"--max-conns", "60", "--conns-per-address", "8"}
				if attack.addresses > 1 {
					rate = 200
				}
			}
			if attack.tls {
				args = append(args, testkit.TLS(t)...)
			}
			s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), args...)
			keepAlive := startKeepAlive(s, 10)
			stop := make(chan struct{})
			var attackers sync.WaitGroup
			open := flood(&attackers, stop, "http://"+s.Address(), conns, rate, attack.addresses, attack.sent)
			flood(&attackers, stop, s.Ops, 300, 300, 1, attack.sent)
			testkit.WaitFor(t, "the hostile connections", func() bool { return open.Load() >= int64(conns) })

			before := s.CPUTime(t)
			var ready sync.WaitGroup
			var probes, failed int
			ready.Go(func() { probes, failed = probe(s, lasts) })
			served, refused, latencies := createOnNewConns(s, lasts)
			ready.Wait()
			cpu := (s.CPUTime(t) - before).Seconds() / lasts.Seconds()
			opened := open.Load()
			close(stop)
			attackers.Wait()
			lost := keepAlive()

			t.Logf("%d connections, %d more during %v: %d of %d new connections served (%.2f %%), p50 %v, p99 %v, max %v; "+
				"%d of 20 clients with a token lost their connection; %d of %d health checks failed; %.2f processors",
				conns, opened-int64(conns), lasts, served, served+refused, 100*float64(served)/float64(served+refused),
				latencies.Quantile(0.5).Round(time.Microsecond), latencies.Quantile(0.99).Round(time.Microsecond),
				latencies.Max().Round(time.Millisecond), lost, failed, probes, cpu)
			want := 40 // percent; on a busy machine more fail, and without shares 18 to 29 % were served
			if *hostileFor > 0 {
				want = 99
				if latencies.Quantile(0.99) > 250*time.Millisecond {
					t.Errorf("p99 is %v, want at most 250 ms", latencies.Quantile(0.99))
				}
			}
			if served*100 < (served+refused)*want {
				t.Errorf("%d of %d new connections were served, want %d %%", served, served+refused, want)
			}
			if (probes-failed)*100 < probes*want {
				t.Errorf("%d of %d health checks failed, want %d %% to succeed", failed, probes, want)
			}
			if lost > 0 {
				t.Errorf("%d clients with a token lost their connection", lost)
			}
		})
	}
}

// flood opens n connections that each send one of the given texts. It then replaces perSecond of them each second until
// stop is closed. It returns the number of connections opened so far.
func flood(
	all *sync.WaitGroup, stop chan struct{}, url string, n, perSecond, addresses int, texts []string,
) *atomic.Int64 {
	const workers, tick = 4, 10 * time.Millisecond
	opened := new(atomic.Int64)
	for range workers {
		all.Go(func() {
			ring, start := make([]net.Conn, n/workers), time.Now()
			defer func() {
				for _, c := range ring {
					reset(c)
				}
			}()
			for i := 0; ; i++ {
				if i == len(ring) {
					start = time.Now()
				}
				for i >= len(ring) && i-len(ring) > int(time.Since(start).Seconds()*float64(perSecond/workers)) {
					select {
					case <-stop:
						return
					case <-time.After(tick):
					}
				}
				at := i % len(ring)
				reset(ring[at])
				ip := "127.0.0.1"
				if addresses > 1 {
					ip = fmt.Sprintf("127.1.%d.%d", i%addresses/250, 1+i%addresses%250)
				}
				c, err := dialFrom(ip, url)
				if ring[at] = c; err == nil {
					io.WriteString(c, texts[i%len(texts)])
				}
				opened.Add(1)
			}
		})
	}
	return opened
}

func reset(c net.Conn) {
	if c != nil {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

// dialFrom opens a connection from a loopback address.
func dialFrom(ip, url string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: testkit.Deadline}
	scheme, address, _ := strings.Cut(url, "://")
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(testkit.Deadline))
	if scheme == "https" {
		config := testkit.ClientTLS()
		config.ServerName = "127.0.0.1"
		return tls.Client(c, config), nil
	}
	return c, nil
}

// exchangeOn sends a request on an open connection. It returns 0 if there is no response.
func exchangeOn(c net.Conn, in *bufio.Reader, request string) (status int) {
	c.SetDeadline(time.Now().Add(testkit.Deadline))
	if _, err := io.WriteString(c, request); err != nil {
		return 0
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// createOnNewConns creates plants from 127.0.0.2, each on a new connection.
func createOnNewConns(s *testkit.Server, lasts time.Duration) (served, refused int, latencies *measure.Histogram) {
	latencies = new(measure.Histogram)
	var mu sync.Mutex
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for i, end := 0, time.Now().Add(lasts); time.Now().Before(end); i++ {
				start, status := time.Now(), 0
				if c, err := dialFrom("127.0.0.2", s.URL); err == nil {
					status = exchangeOn(c, bufio.NewReader(c), s.RawCreate(1+client*1_000_000+i))
					c.Close()
				}
				mu.Lock()
				latencies.Record(time.Since(start))
				if status == 200 {
					served++
				} else {
					refused++
				}
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	clients.Wait()
	return served, refused, latencies
}

// startKeepAlive connects n clients with a token from each of two addresses. Each sends requests on one connection,
// with pauses after which the server may evict it when all connections are in use. The returned function ends the
// clients and returns how many have lost their connection.
func startKeepAlive(s *testkit.Server, n int) (end func() (lost int)) {
	stop := make(chan struct{})
	var failed atomic.Int64
	var clients sync.WaitGroup
	request := fmt.Sprintf("GET /plants/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", s.Token)
	for i := range 2 * n {
		c, err := dialFrom(fmt.Sprintf("127.0.0.%d", 1+i%2), s.URL)
		if err != nil {
			failed.Add(1)
			continue
		}
		in := bufio.NewReader(c)
		if exchangeOn(c, in, request) == 0 {
			failed.Add(1)
			continue
		}
		clients.Go(func() {
			defer c.Close()
			for ended := false; !ended; {
				select {
				case <-stop:
					ended = true
				case <-time.After(1500 * time.Millisecond):
				}
				if exchangeOn(c, in, request) == 0 {
					failed.Add(1)
					return
				}
			}
		})
	}
	return func() int {
		close(stop)
		clients.Wait()
		return int(failed.Load())
	}
}

// probe checks readiness on new connections from the address of the attackers.
func probe(s *testkit.Server, lasts time.Duration) (probes, failed int) {
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		probes++
		c, err := dialFrom("127.0.0.1", s.Ops)
		if err != nil {
			failed++
			continue
		}
		if exchangeOn(c, bufio.NewReader(c), "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n") != 200 {
			failed++
		}
		c.Close()
	}
	return probes, failed
}
