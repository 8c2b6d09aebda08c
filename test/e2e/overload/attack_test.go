package overload

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/token"
	"plantstore/test/testkit"
)

// attack is connections that open again and again.
type attack struct {
	conns, addresses int
	lasts            time.Duration                  // of a connection, after which it is reset and opened again
	requests         func(credential string) string // with this header, or without one
	repeats          bool                           // reads responses and sends the next request; others never read
}

// start connects the clients to an address and waits until each has tried. stop disconnects them and returns how many
// requests they have sent.
func (a attack) start(url, credential string) (stop func() (sent int64)) {
	stopped := make(chan struct{})
	var clients, opened sync.WaitGroup
	var sent atomic.Int64
	for i := range a.conns {
		opened.Add(1)
		clients.Go(func() {
			ip := "127.0.0.1"
			if a.addresses > 1 {
				ip = fmt.Sprintf("127.1.%d.%d", i%a.addresses/250, 1+i%a.addresses%250)
			}
			lasts := time.Duration(rand.Float64() * float64(a.lasts)) // so that they do not open at the same time again
			for first := true; ; first, lasts = false, a.lasts {
				end := time.Now().Add(lasts)
				c, err := dialFrom(ip, url)
				if first {
					opened.Done()
				}
				if err == nil {
					sent.Add(a.use(c, credential, end, stopped))
				}
				select { // It opens again at its rate, also if the service has closed it.
				case <-stopped:
				case <-time.After(time.Until(end)):
				}
				if reset(c); isClosed(stopped) {
					return
				}
			}
		})
	}
	opened.Wait()
	return func() int64 {
		close(stopped)
		clients.Wait()
		return sent.Load()
	}
}

// use sends requests on a connection and returns how many.
func (a attack) use(c net.Conn, credential string, end time.Time, stopped chan struct{}) (sent int64) {
	if !a.repeats {
		io.WriteString(c, a.requests(credential))
		return 1
	}
	in := bufio.NewReader(c)
	for time.Now().Before(end) && !isClosed(stopped) {
		sent++
		if exchangeOn(c, in, a.requests(credential)) == 0 {
			break
		}
	}
	return sent
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reset closes a connection without waiting for its last bytes.
func reset(c net.Conn) {
	if plain, ok := c.(*net.TCPConn); ok {
		plain.SetLinger(0)
	}
	if c != nil {
		c.Close()
	}
}

// dialFrom opens a connection from a loopback address.
func dialFrom(ip, url string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: testkit.Deadline}
	_, address, _ := strings.Cut(url, "://")
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(testkit.Deadline))
	return c, nil
}

// exchangeOn sends a request on an open connection. It returns 0 if there is no response.
func exchangeOn(c net.Conn, in *bufio.Reader, request string) (status int) {
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

const (
	incompleteHead = "POST /plants HTTP/1.1\r\nHost: x\r\n"
	incompleteBody = incompleteHead + "Content-Type: application/json\r\nContent-Length: 30\r\n\r\n{"
	largeBody      = incompleteHead + "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
)

// unread is requests for responses of more than a megabyte each.
var unread = strings.Repeat("GET /docs/scalar.js HTTP/1.1\r\nHost: x\r\n\r\n", 8)

// oneOf returns a text at random.
func oneOf(texts ...string) func(string) string {
	return func(string) string { return texts[rand.IntN(len(texts))] }
}

// getting is a request with more headers than the credential, each with its line break.
func getting(path, headers string) func(credential string) string {
	return func(credential string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + credential + "\r\n"
	}
}

// creating is a request for a new plant.
func creating(credential string) string {
	plant := fmt.Sprintf(`{"id":%d,"name":"x"}`, rand.Int64())
	return incompleteHead + credential +
		fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(plant), plant)
}

func unknownToken(string) string {
	return getting("/plants/1", "Authorization: Bearer "+token.Generate()+"\r\n")("")
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
