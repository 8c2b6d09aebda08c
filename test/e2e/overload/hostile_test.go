package overload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"plantstore/test/testkit"
)

// canary is the id of a plant that is sent only inside or after something else, and must never be created.
const canary = 666

// exchange sends bytes on a new connection and reads responses until the server closes it, which it must do before an
// idle connection times out. more reports that the server waits for more bytes: then the client closes its side.
func exchange(t *testing.T, p *testkit.Server, what, request string, more bool) (responses []testkit.Response) {
	t.Helper()
	c := p.Dial(t)
	defer c.Close()
	c.SetDeadline(time.Now().Add(25 * time.Second))
	io.WriteString(c, request) // The server may reset the connection meanwhile.
	if more {
		c.(interface{ CloseWrite() error }).CloseWrite()
	}
	all, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection is open after 25 s", what)
	}
	for in := bufio.NewReader(bytes.NewReader(all)); ; {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return responses
		}
		body, _ := io.ReadAll(response.Body)
		if response.Close { // ReadResponse removes the header.
			response.Header.Set("Connection", "close")
		}
		responses = append(responses,
			testkit.Response{Status: response.StatusCode, Header: response.Header, Body: string(body)})
	}
}

const (
	auth    = "Authorization: Bearer TOKEN\r\n" // TOKEN stands for a valid token.
	post    = "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + auth
	get     = "GET /plants HTTP/1.1\r\nHost: x\r\n" + auth
	body    = `{"id":1,"name":"x"}`
	chunked = "13\r\n" + body + "\r\n0\r\n\r\n"
	length  = "Content-Length: 19\r\n"
	coded   = "Transfer-Encoding: chunked\r\n\r\n"
)

var hello = "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + strings.Repeat("\x2a", 189)

// closingRequests get an Error or no response, and their connection is closed.
var closingRequests = []struct {
	what, request string
	numbers       []int // the possible errors, if there is a response
	more          bool  // the server waits for more bytes
}{
	// Two parsers could disagree about where these end. TestFraming of internal/listen has more of them.
	{"a length and chunks", post + length + "Transfer-Encoding: chunked\r\n\r\n" + chunked, []int{40024}, false},
	{"two lengths", post + "Content-Length: 0\r\n" + length + "\r\n" + body, []int{40024}, false},
	{"a negative length", post + "Content-Length: -1\r\n\r\n", []int{40024}, false},
	{"a length in hexadecimal", post + "Content-Length: 0x13\r\n\r\n" + body, []int{40024}, false},
	{"a space before the colon of a length", post + "Content-Length : 19\r\n\r\n" + body, []int{40024}, false},
	{"a space before the colon of a coding", post + "Transfer-Encoding : chunked\r\n\r\n" + chunked, []int{40024}, false},
	{"a tab before the colon of a coding", post + "Transfer-Encoding\t: chunked\r\n\r\n" + chunked, []int{40024}, false},
	{"two codings", post + "Transfer-Encoding: identity, chunked\r\n\r\n" + chunked, []int{50101}, false},
	{"two coding headers", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked,
		[]int{50101}, false},
	{"a coding with a vertical tab", post + "Transfer-Encoding: \x0bchunked\r\n\r\n" + chunked, []int{40024, 50101},
		false},
	{"a coding in quotes", post + "Transfer-Encoding: \"chunked\"\r\n\r\n" + chunked, []int{50101}, false},
	{"a coding that is no chunked", post + "Transfer-Encoding: xchunked\r\n\r\n" + chunked, []int{50101}, false},
	{"an empty coding", post + "Transfer-Encoding:\r\n\r\n", []int{50101}, false},
	{"a folded header", get + "X: a\r\n\tb\r\n\r\n", []int{40024}, false},
	{"a fold before any header", "GET /plants HTTP/1.1\r\n Host: x\r\n\r\n", []int{40024}, false},
	{"LF in place of CRLF", "GET /plants HTTP/1.1\nHost: x\n\n", []int{40024}, false},
	{"CR alone", get + "X: a\rTransfer-Encoding: chunked\r\n\r\n", []int{40024}, false},
	{"NUL in a value", get + "X: a\x00b\r\n\r\n", []int{40024}, false},
	{"NUL in a name", get + "X\x00: a\r\n\r\n", []int{40024}, false},
	{"NUL in the target", "GET /plants\x00 HTTP/1.1\r\nHost: x\r\n\r\n", []int{40024}, false},
	{"broken chunks", post + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n0\r\n\r\n", []int{40022}, false},
	{"LF after a chunk size", post + coded + "13\n" + body + "\r\n0\r\n\r\n", []int{40022}, false},
	{"a negative chunk", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", []int{40022}, false},
	{"chunks in HTTP/1.0",
		strings.Replace(post, "1.1", "1.0", 1) + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		[]int{40001}, false},
	{"chunks that store nothing", post + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n", []int{40002}, false},

	{"HTTP/0.9", "GET /plants\r\n", []int{40024}, false},
	{"HTTP/1.0", "GET /plants HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", []int{40101}, false},
	{"HTTP/9.9", "GET /plants HTTP/9.9\r\nHost: x\r\n\r\n", []int{50501}, false},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		[]int{40024, 40402, 50501}, false},
	{"the hello of TLS", hello, []int{40024}, true},
	{"CONNECT", "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n", []int{40402}, false},
	{"CONNECT to a path", "CONNECT /plants HTTP/1.1\r\nHost: x\r\n\r\n", []int{40501}, false},
	{"two hosts", "GET /plants HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", []int{40024}, false},
	{"a host that is none", "GET /plants HTTP/1.1\r\nHost: x y/z\r\n\r\n", []int{40024}, false},
	{"a space in the target", "GET /pl ants HTTP/1.1\r\nHost: x\r\n\r\n", []int{40024}, false},
	{"no slash", "GET plants HTTP/1.1\r\nHost: x\r\n\r\n", []int{40024}, false},
	{"a method of escapes", "\x1b[31mGET /plants HTTP/1.1\r\nHost: x\r\n\r\n", []int{40024}, false},
	{"2 MB in one header", get + "A: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", []int{43101}, false},
	{"2 MB in many headers", get + strings.Repeat("A: b\r\n", 2<<20/6) + "\r\n", []int{43101}, false},
	{"2 MB of a target", "GET /" + strings.Repeat("x", 2<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n", []int{43101}, false},
	{"2 MB without a line's end", strings.Repeat("x", 2<<20), []int{43101}, false},
	{"a token of 64 KB",
		"GET /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer plant_" + strings.Repeat("x", 64<<10) + "\r\n\r\n",
		[]int{43101}, false},
	{"a body that is not read to its end",
		strings.Replace(post, auth, "", 1) + "Content-Length: 999999999\r\n\r\n" + body, []int{40101}, false},
}

// refusedRequests are well-formed. Each gets an Error, and its connection stays open.
var refusedRequests = []struct {
	what, request string
	number        int
}{
	{"two credentials", get + auth + "\r\n", 40102},
	{"a token of 20 KB",
		"GET /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer plant_" + strings.Repeat("x", 20<<10) + "\r\n\r\n", 40103},
	{"TRACE", strings.Replace(get, "GET", "TRACE", 1) + "\r\n", 40501},
	{"a path out of the root", "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 40402},
	{"the same in escapes", "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 40402},
	{"an address of another host", "GET http://evil.example/nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 40402},
	{"a path of escapes", "GET /%1b%5b31m%0d%0aX-Evil:%20y HTTP/1.1\r\nHost: x\r\n\r\n", 40402},
	{"an id of escapes", strings.Replace(get, "/plants", "/plants/%1b%5d0;x%07%c2%9b31m%0d%0a", 1) + "\r\n", 40025},
}

// A valid request that follows on the connection of one that cannot be parsed is never executed. One that follows on
// the connection of a refused request gets its own response.
func TestHostileRequests(t *testing.T) { testkit.OnEachTransport(t, testHostileRequests) }

func testHostileRequests(t *testing.T, args []string) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), append(args, "--access-log", "all")...)
	smuggled := p.RawCreate(canary)
	for _, test := range closingRequests {
		request := strings.ReplaceAll(test.request, "TOKEN", p.Token)
		responses := exchange(t, p, test.what, request+smuggled, test.more)
		if len(responses) > 1 {
			t.Errorf("%s: %d responses, want at most one: %v", test.what, len(responses), responses)
		}
		for _, a := range responses {
			if !slices.Contains(test.numbers, a.Number()) {
				t.Errorf("%s: %d %.200s, want one of %v", test.what, a.Status, a.Body, test.numbers)
				continue
			}
			testkit.WantError(t, test.what, a, a.Number())
		}
	}

	nested := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(smuggled), smuggled)
	for _, test := range append(slices.Clone(refusedRequests), []struct {
		what, request string
		number        int
	}{
		{"a body that contains a request", post + nested, 40002},
		{"a body of a method without one", get + "X: y\r\n" + nested, 200},
	}...) {
		wantRefusedAlone(t, p, test.what, strings.ReplaceAll(test.request, "TOKEN", p.Token), test.number)
	}
	testkit.WantResponse(t, "the stored plants", p.Do(t, "GET", "/plants", ""), 200, "[]")
	wantCleanLog(t, p)
}

// wantRefusedAlone sends a request and another on the same connection, which must get its own response.
func wantRefusedAlone(t *testing.T, p *testkit.Server, what, request string, number int) {
	t.Helper()
	next := "GET /plants/canary HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + p.Token + "\r\n\r\n"
	responses := exchange(t, p, what, request+next, false)
	if len(responses) != 2 || responses[1].Number() != 40025 || !strings.Contains(responses[1].Body, "canary") {
		t.Errorf("%s: %d responses, want two, the second about the canary: %v", what, len(responses), responses)
		return
	}
	if number == 200 {
		testkit.WantResponse(t, what, responses[0], 200, "[]")
		return
	}
	testkit.WantError(t, what, responses[0], number)
	if responses[0].Header.Get("X-Evil") != "" {
		t.Errorf("%s: a header was injected: %v", what, responses[0].Header)
	}
}

// wantCleanLog ends the service and checks its log: one JSON record on each line, nothing that a client has forged, and
// no internal error.
func wantCleanLog(t *testing.T, p *testkit.Server) {
	t.Helper()
	p.Kill() // Then its log is complete.
	log := p.Stderr.String()
	for line := range strings.Lines(log) {
		var record struct {
			Level, Msg string
			Status     int
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Errorf("the line %.300q is not a record: %v", line, err)
		}
		if record.Status >= 500 && record.Status != 501 && record.Status != 505 || record.Msg == "forged" {
			t.Errorf("in the log: %s", line)
		}
	}
	if i := strings.IndexFunc(log, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("the log contains a control character: %.100q", log[max(0, i-50):])
	}
}

// Pipelined requests get their responses in order, even if the last is invalid. After a chunked body the connection is
// closed, since a proxy may disagree about its end.
func TestPipelines(t *testing.T) { testkit.OnEachTransport(t, testPipelines) }

func testPipelines(t *testing.T, args []string) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), args...)
	var all strings.Builder
	for id := range 20 {
		all.WriteString(p.RawCreate(id))
		fmt.Fprintf(&all, "GET /plants/%d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", id, p.Token)
	}
	responses := exchange(t, p, "a pipeline", all.String()+"GET / HTTP/1.1\nHost: x\r\n\r\n"+p.RawCreate(canary), false)
	if len(responses) < 40 || len(responses) > 41 { // the last may be lost with the connection
		t.Fatalf("%d responses to 40 requests and a wrong one", len(responses))
	}
	for i, a := range responses[:40] {
		want := `{"name":"x"}`
		if i%2 == 1 {
			want = fmt.Sprintf(`{"id":%d,"name":"x"}`, i/2)
		}
		testkit.WantResponse(t, fmt.Sprint("request ", i), a, 200, want)
	}
	if len(responses) > 40 {
		testkit.WantError(t, "the wrong one", responses[40], 40024)
	}

	request := strings.ReplaceAll(post+coded+chunked, "TOKEN", p.Token)
	responses = exchange(t, p, "chunks", request+p.RawCreate(canary), false)
	if len(responses) != 1 || responses[0].Status != 200 || responses[0].Header.Get("Connection") != "close" {
		t.Errorf("chunks and another request: %v, want one 200 and Connection: close", responses)
	}
	if a := p.Do(t, "GET", fmt.Sprint("/plants/", canary), ""); a.Status != 404 {
		t.Errorf("the canary was created: %d %s", a.Status, a.Body)
	}
}

// Deeply nested JSON exhausts neither the stack nor the memory of the service.
func TestDeepJSON(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--max-body", strconv.Itoa(4<<20))
	for what, body := range map[string]string{
		"arrays": `{"id":1,"name":"x","more":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) +
			`}`,
		"unclosed arrays": `{"id":1,"name":"x","more":` + strings.Repeat("[", 100_000),
		"objects": `{"id":1,"name":"x","more":` + strings.Repeat(`{"a":`, 100_000) + "1" +
			strings.Repeat("}", 100_000) + `}`,
		"in place of a name": `{"id":1,"name":` + strings.Repeat("[", 100_000),
	} {
		a := p.Create(t, body)
		if n := a.Number(); n != 40008 && !(what == "in place of a name" && n == 40015) {
			t.Errorf("%s, 100 000 levels deep: %d %.200s, want error 40008", what, a.Status, a.Body)
		}
	}
	testkit.WantResponse(t, "what is stored", p.Do(t, "GET", "/plants", ""), 200, "[]")
	if after := p.Memory(t, "VmRSS"); after > 128<<20 {
		t.Errorf("%d MiB in use after deep bodies", after>>20)
	}
}

// A name may contain commands for a terminal, a log or a database. It is stored unchanged and never executed.
func TestNamesAreNeverExecuted(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--access-log", "all")
	for i, name := range []string{
		"a\r\nSet-Cookie: evil=1\r\n\r\n<script>", "\x1b]0;owned\x07\x1b[2J\x1b[31m", "\u009b31m",
		"{\"level\":\"ERROR\",\"msg\":\"forged\"}\n{\"msg\":\"forged\"}",
		"\u202egnp.exe", "\x7f\b\b\b", "' OR 1=1; DROP TABLE plants; --", "../../etc/passwd", "${jndi:ldap://127.0.0.1/x}",
		"%s%n%x",
	} {
		text, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		a := p.Create(t, fmt.Sprintf(`{"id":%d,"name":%s,"tag":%[2]s}`, i, text))
		if a.Status != 200 || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("create %q: %d %v %s", name, a.Status, a.Header, a.Body)
		}
		var stored struct{ Name, Tag string }
		if a := p.Do(t, "GET", fmt.Sprint("/plants/", i), ""); json.Unmarshal([]byte(a.Body), &stored) != nil ||
			stored.Name != name || stored.Tag != name {
			t.Errorf("%q became %s", name, a.Body)
		}
		testkit.WantError(t, "as an id", p.Create(t, fmt.Sprintf(`{"id":%s,"name":"x"}`, text)), 40013)
		testkit.WantError(t, "as a type", p.Do(t, "POST", "/plants", "{}", "Content-Type: "+strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r < 0x80 {
				return '?' // net/http does not send such a header.
			}
			return r
		}, name)), 40019)
	}
	out, _, code := testkit.Run(t, []string{"PLANTSTORE_TOKEN=" + p.Token}, "plants", "list", "--url", p.URL)
	if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); code != 0 || i >= 0 {
		t.Errorf("plants list: exit %d, prints %.100q", code, out[max(0, i-20):])
	}
	wantCleanLog(t, p)
}
