// Package sandbox tests serve --sandbox: bounds, the end of sandboxes, faults, journals, several processes, isolation.
package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// box is a sandbox, as its client knows it.
type box struct {
	testkit.Target
	Store string
}

// newBox creates a sandbox.
func newBox(t testing.TB, s *testkit.Server, options string) box {
	t.Helper()
	a := post(t, s.URL, options)
	var created struct{ Store, Token string }
	if err := json.Unmarshal([]byte(a.Body), &created); err != nil || a.Status != 201 {
		t.Fatalf("POST /sandboxes %s: %d %s", options, a.Status, a.Body)
	}
	return box{testkit.Target{URL: s.URL, Token: created.Token}, created.Store}
}

// post sends POST /sandboxes.
func post(t testing.TB, url, options string) testkit.Response {
	t.Helper()
	a, err := testkit.Target{URL: url}.Send("POST", "/sandboxes", options, "Authorization")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// send sends a request that must get a response, as it is described.
func send(t testing.TB, to testkit.Target, method, path, body string, headers ...string) testkit.Response {
	t.Helper()
	a, err := to.Send(method, path, body, headers...)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return a
	}
	r, _ := http.NewRequest(method, to.URL+path, nil)
	r.Header = http.Header{"Authorization": {"Bearer x"}, "Content-Type": {"application/json"}}
	testkit.Check(t, r, body, a)
	return a
}

// rowsOf counts the rows of a store in a table.
func rowsOf(t testing.TB, db, table, store string) string {
	t.Helper()
	return testkit.Query(t, db, fmt.Sprintf("SELECT count(*) FROM %s WHERE store = '%s'", table, store))[0][0]
}

// conn is a connection that sends each request once. net/http repeats a read whose connection was closed.
type conn struct {
	url  string
	conn net.Conn
	in   *bufio.Reader
}

// send returns a status of 0 if there is no response, or only a part of one.
func (c *conn) send(credential, method, path, body string, headers ...string) (a testkit.Response, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", strings.TrimPrefix(c.url, "http://")); err != nil {
			return a, err
		}
		c.in = bufio.NewReader(c.conn)
	}
	c.conn.SetDeadline(time.Now().Add(2 * testkit.Deadline))
	head := []string{method + " " + path + " HTTP/1.1", "Host: x", "Authorization: Bearer " + credential}
	head = append(head, headers...)
	if body != "" {
		head = append(head, testkit.ContentJSON, fmt.Sprint("Content-Length: ", len(body)))
	}
	io.WriteString(c.conn, strings.Join(head, "\r\n")+"\r\n\r\n"+body) // If it fails, there is no response.
	response, err := http.ReadResponse(c.in, nil)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(response.Body)
	}
	if err != nil || response.Close {
		c.conn.Close()
		c.conn = nil
	}
	if err != nil {
		return a, err
	}
	return testkit.Response{Status: response.StatusCode, Header: response.Header, Body: string(text)}, nil
}
