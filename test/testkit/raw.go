package testkit

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Dial opens a connection to the API. Every read and write on it ends by the deadline of a test.
func (s *Server) Dial(t testing.TB) net.Conn {
	t.Helper()
	c := s.DialPlain(t)
	if strings.HasPrefix(s.URL, "https:") {
		config := ClientTLS()
		config.ServerName = "127.0.0.1"
		return tls.Client(c, config)
	}
	return c
}

// DialPlain is Dial without TLS.
func (s *Server) DialPlain(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(Deadline))
	return c
}

// Address is the host and port of the API.
func (s *Server) Address() string {
	_, address, _ := strings.Cut(s.URL, "://")
	return address
}

// Raw writes bytes to a new connection and returns everything up to its end.
func (s *Server) Raw(t testing.TB, request string) string {
	t.Helper()
	c := s.Dial(t)
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(bufio.NewReader(c))
	return string(all)
}

// ParseRaw returns the status and the body of what Raw returned.
func ParseRaw(response string) (status int, body string) {
	a, _ := readResponse(bufio.NewReader(strings.NewReader(response)))
	return a.Status, a.Body
}

// RawCreate is the bytes of a request that creates a plant.
func (s *Server) RawCreate(id int) string { return rawCreate(s.Token, id, "x") }

func rawCreate(token string, id int, name string) string {
	body := fmt.Sprintf(`{"id":%d,"name":%q}`, id, name)
	return fmt.Sprintf("POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
}

// Conn is a connection that costs the client less than net/http, for tests with many clients.
type Conn struct {
	net.Conn
	t     *testing.T
	token string
	in    *bufio.Reader
}

// Connect opens a connection that is closed at the end of the test.
func (s *Server) Connect(t *testing.T) *Conn {
	t.Helper()
	conn := s.Dial(t)
	t.Cleanup(func() { conn.Close() })
	return &Conn{conn, t, s.Token, bufio.NewReader(conn)}
}

// Create creates a plant and returns the status and the body of the response. Without one it fails the test.
func (c *Conn) Create(id int, name string) (a Response) {
	c.SetDeadline(time.Now().Add(Deadline))
	_, err := io.WriteString(c, rawCreate(c.token, id, name))
	if err == nil {
		a, err = readResponse(c.in)
	}
	if err != nil {
		c.t.Errorf("plant %d: %v", id, err)
	}
	return a
}

func readResponse(in *bufio.Reader) (Response, error) {
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return Response{}, err
	}
	body, err := io.ReadAll(response.Body)
	return Response{response.StatusCode, response.Header, string(body)}, err
}

// FreeAddress is an address for servers that are restarted on it: its port is outside the range that the system assigns
// to clients and the ranges of other servers of tests. No other test gets it before this one ends, in any process.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := 22500 + rand.IntN(7500)
		claim, err := net.Listen("unix", fmt.Sprint("@plantstore-test-port-", port)) // a name that only one process can have
		if err != nil {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			t.Cleanup(func() { claim.Close() })
			return address
		}
		claim.Close()
	}
	t.Fatal("no free port")
	return ""
}
