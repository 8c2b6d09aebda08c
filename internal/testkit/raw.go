package testkit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

func (p *Server) Dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(15 * time.Second))
	return c
}

func Chunked(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), 1000)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

func ParseRaw(response string) (status int, body string) {
	head, body, _ := strings.Cut(response, "\r\n\r\n")
	if len(head) > 12 {
		status, _ = strconv.Atoi(head[9:12])
	}
	return status, body
}

// RawCreate is a whole request as it goes over the wire.
func (p *Server) RawCreate(id int) string {
	body := fmt.Sprintf(`{"id":%d,"name":"x"}`, id)
	return fmt.Sprintf("POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", p.Token, len(body), body)
}

// Raw writes bytes to a new connection and returns everything that comes back.
func (p *Server) Raw(t testing.TB, request string) string {
	t.Helper()
	c := p.Dial(t)
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	all, _ := io.ReadAll(bufio.NewReader(c))
	return string(all)
}

// Conn is one connection to a server.
type Conn struct {
	t    *testing.T
	p    *Server
	Conn net.Conn
	in   *bufio.Reader
}

func Connect(t *testing.T, p *Server) *Conn {
	t.Helper()
	conn := p.Dial(t)
	conn.SetDeadline(time.Time{}) // each answer has its own
	t.Cleanup(func() { conn.Close() })
	return &Conn{t, p, conn, bufio.NewReader(conn)}
}

func (s *Conn) Create(id int, name string) Response {
	body := fmt.Sprintf(`{"id":%d,"name":%q}`, id, name)
	s.Conn.SetWriteDeadline(time.Now().Add(time.Minute))
	_, err := fmt.Fprintf(s.Conn, "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		s.p.Token, len(body), body)
	if err != nil {
		s.t.Errorf("plant %d: %v", id, err)
		return Response{}
	}
	a, err := s.ReadResponse()
	if err != nil {
		s.t.Errorf("plant %d: %v", id, err)
	}
	return a
}

// ReadResponse reads an answer's status and body, in less time than the library takes: the clients of a race are many.
func (s *Conn) ReadResponse() (a Response, err error) {
	length := 0
	s.Conn.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return a, err
		}
		if status, ok := strings.CutPrefix(line, "HTTP/1.1 "); ok {
			a.Status, err = strconv.Atoi(status[:3])
		} else if text, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, err = strconv.Atoi(strings.TrimSpace(text))
		} else if line == "\r\n" {
			break
		}
		if err != nil {
			return a, err
		}
	}
	body := make([]byte, length)
	_, err = io.ReadFull(s.in, body)
	a.Body = string(body)
	return a, err
}
