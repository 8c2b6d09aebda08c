package overload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"plantstore/internal/testkit"
)

var slowFor = flag.Duration("slow", 0,
	"how long TestSlowClients lets slow clients be; past 70 s it also sees them cut off")

const canary = 666 // the id of a plant that is only ever sent inside something else

// exchange sends bytes on a new connection and reads answers until the server ends it: it must, within seconds. Where the
// bytes leave it waiting for more, that no more comes is told.
func exchange(t *testing.T, p *testkit.Server, what, request string, more bool) (answers []testkit.Response) {
	t.Helper()
	c := p.Dial(t)
	defer c.Close()
	c.SetDeadline(time.Now().Add(8 * time.Second))
	io.WriteString(c, request) // a reset on the way is an end as well
	if more {
		c.(interface{ CloseWrite() error }).CloseWrite()
	}
	all, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection is open after 8 s", what)
	}
	for in := bufio.NewReader(bytes.NewReader(all)); ; {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return answers
		}
		body, _ := io.ReadAll(response.Body)
		if response.Close { // which the library takes out of the headers
			response.Header.Set("Connection", "close")
		}
		answers = append(answers, testkit.Response{Status: response.StatusCode, Header: response.Header, Body: string(body)})
	}
}

// Each of these must end in an Error or in nothing, and with the connection: what follows on it, a request in good
// order, is never carried out.
func TestHostileRequests(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--access-log", "all")
	smuggled := p.RawCreate(canary)
	auth := "Authorization: Bearer " + p.Token + "\r\n"
	post := "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + auth
	get := "GET /plants HTTP/1.1\r\nHost: x\r\n" + auth
	body := `{"id":1,"name":"x"}`
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(body))
	hello := "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + strings.Repeat("\x2a", 189)

	for _, test := range []struct {
		what, request string
		numbers       []int // of the catalogue, where there is an answer
		more          bool  // the server waits for more than is sent
	}{
		// Two readers could see the end of these in different places.
		{"a length and chunks", post + length + "Transfer-Encoding: chunked\r\n\r\n" + chunked, []int{40024}, false},
		{"chunks and a length", post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", []int{40024},
			false},
		{"chunks and no length at all", post + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + chunked,
			[]int{40024}, false},
		{"in another case", post + "transfer-ENCODING: Chunked\r\ncontent-LENGTH: 4\r\n\r\n" + chunked, []int{40024}, false},
		{"two lengths", post + "Content-Length: 0\r\n" + length + "\r\n" + body, []int{40024}, false},
		{"the same length twice", post + length + length + "\r\n" + body, []int{40024}, false},
		{"a list of lengths", post + "Content-Length: 19, 19\r\n\r\n" + body, []int{40024}, false},
		{"a length with a sign", post + "Content-Length: +19\r\n\r\n" + body, []int{40024}, false},
		{"a negative length", post + "Content-Length: -1\r\n\r\n", []int{40024}, false},
		{"a length in hexadecimal", post + "Content-Length: 0x13\r\n\r\n" + body, []int{40024}, false},
		{"a huge length", post + "Content-Length: 99999999999999999999\r\n\r\n", []int{40024}, false},
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
		{"a folded coding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n" + chunked, []int{40024}, false},
		{"a folded header", get + "X: a\r\n\tb\r\n\r\n", []int{40024}, false},
		{"a fold before any header", "GET /plants HTTP/1.1\r\n Host: x\r\n\r\n", []int{40024}, false},
		{"LF in place of CRLF", "GET /plants HTTP/1.1\nHost: x\n\n", []int{40024}, false},
		{"LF after a header", get + "X: a\nY: b\r\n\r\n", []int{40024}, false},
		{"LF at the end of the head", get + "\n", []int{40024}, false},
		{"CR alone", get + "X: a\rTransfer-Encoding: chunked\r\n\r\n", []int{40024}, false},
		{"NUL in a value", get + "X: a\x00b\r\n\r\n", []int{40024}, false},
		{"NUL in a name", get + "X\x00: a\r\n\r\n", []int{40024}, false},
		{"NUL in the target", "GET /plants\x00 HTTP/1.1\r\nHost: x\r\n\r\n", []int{40024}, false},
		{"broken chunks", post + "Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n0\r\n\r\n", []int{40022}, false},
		{"a negative chunk", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", []int{40022}, false},
		{"a huge chunk", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", []int{40022}, false},
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
	} {
		answers := exchange(t, p, test.what, test.request+smuggled, test.more)
		if len(answers) > 1 {
			t.Errorf("%s: %d answers, want one at most: %v", test.what, len(answers), answers)
		}
		for _, a := range answers {
			if !slices.Contains(test.numbers, a.Number()) {
				t.Errorf("%s: %d %.200s, want one of %v", test.what, a.Status, a.Body, test.numbers)
				continue
			}
			testkit.WantError(t, test.what, a, a.Number())
		}
	}

	// These are in order, as requests, and their connections go on: each is refused, and the canary after it, sent to
	// another path, is answered as what it is.
	next := "GET /canary HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for _, test := range []struct {
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
		{"a body that holds a request", post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(smuggled), smuggled), 40002},
		{"a body that no method of this kind has",
			get + fmt.Sprintf("X: y\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled), 200},
	} {
		answers := exchange(t, p, test.what, test.request+next, false)
		if len(answers) != 2 || answers[1].Number() != 40402 || !strings.Contains(answers[1].Body, "canary") {
			t.Errorf("%s: %d answers, want two, the second about the canary: %v", test.what, len(answers), answers)
			continue
		}
		if test.number == 200 {
			testkit.WantResponse(t, test.what, answers[0], 200, "[]")
			continue
		}
		testkit.WantError(t, test.what, answers[0], test.number)
		if answers[0].Header.Get("X-Evil") != "" {
			t.Errorf("%s: a header was injected: %v", test.what, answers[0].Header)
		}
	}
	testkit.WantResponse(t, "what is stored after all that", p.Do(t, "GET", "/plants", ""), 200, "[]")
	wantCleanLog(t, p)
}

// wantCleanLog ends the service and wants a log of records, a line each, that nothing a client sends has broken, and no fault of ours in it.
func wantCleanLog(t *testing.T, p *testkit.Server) {
	t.Helper()
	p.Kill() // after which all that it has written is read
	log := p.Stderr.String()
	for line := range strings.Lines(log) {
		var record struct {
			Level, Msg string
			Status     int
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Errorf("the line %.300q is no record: %v", line, err)
		}
		if record.Status >= 500 && record.Status != 501 && record.Status != 505 || record.Msg == "forged" {
			t.Errorf("in the log: %s", line)
		}
	}
	if i := strings.IndexFunc(log, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("a control character stands in the log as it is: %.100q", log[max(0, i-50):])
	}
}

// Requests that come together are answered in their order, also where only the last is wrong. After chunks the connection
// ends, since a proxy may see their end elsewhere.
func TestPipelines(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	var all strings.Builder
	for id := range 20 {
		all.WriteString(p.RawCreate(id))
		fmt.Fprintf(&all, "GET /plants/%d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", id, p.Token)
	}
	answers := exchange(t, p, "a pipeline", all.String()+"GET / HTTP/1.1\nHost: x\r\n\r\n"+p.RawCreate(canary), false)
	if len(answers) < 40 || len(answers) > 41 { // the last may be lost with the connection
		t.Fatalf("%d answers to 40 requests and a wrong one", len(answers))
	}
	for i, a := range answers[:40] {
		want := `{"name":"x"}`
		if i%2 == 1 {
			want = fmt.Sprintf(`{"id":%d,"name":"x"}`, i/2)
		}
		testkit.WantResponse(t, fmt.Sprint("request ", i), a, 200, want)
	}
	if len(answers) > 40 {
		testkit.WantError(t, "the wrong one", answers[40], 40024)
	}

	body := `{"id":100,"name":"x"}`
	request := "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + p.Token +
		"\r\nTransfer-Encoding: chunked\r\n\r\n" + testkit.Chunked(body)
	answers = exchange(t, p, "chunks", request+p.RawCreate(canary), false)
	if len(answers) != 1 || answers[0].Status != 200 || answers[0].Header.Get("Connection") != "close" {
		t.Errorf("chunks and another request: %v, want one answer, 200, and the end", answers)
	}
	if a := p.Do(t, "GET", fmt.Sprint("/plants/", canary), ""); a.Status != 404 {
		t.Errorf("the canary was created: %d %s", a.Status, a.Body)
	}
}

// Depth costs neither the stack nor the memory of the service.
func TestDeepJSON(t *testing.T) {
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--max-body", strconv.Itoa(4<<20))
	for what, body := range map[string]string{
		"arrays": `{"id":1,"name":"x","more":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) +
			`}`,
		"arrays that end": `{"id":1,"name":"x","more":` + strings.Repeat("[", 100_000),
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

// A name may hold what a terminal or a log would obey. It is stored as it is, and nothing obeys.
func TestNamesThatCommand(t *testing.T) {
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
				return '?' // such a header does not get this far
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

const (
	slowClients = 150 // of each kind
	flatMemory  = 256 << 20
)

// Hundreds of clients that send headers, send bodies and read answers a few bytes at a time do not harm one that
// behaves, and the memory that they can take has an end.
func TestSlowClients(t *testing.T) {
	program, err := exec.LookPath("slowhttptest")
	if err != nil {
		testkit.Unavailable(t, "no slowhttptest on this machine: install the package slowhttptest; `make test` does")
	}
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	large := strings.Repeat("x", 60_000)
	for id := range 20 {
		p.Create(t, fmt.Sprintf(`{"id":%d,"name":%q}`, -id-1, large))
	}
	calm := latency(t, p)

	length := max(60, int(slowFor.Seconds())+30)
	// The tool has no way to send a credential but along with a cookie.
	credential := "a=b\r\nAuthorization: Bearer " + p.Token
	for _, args := range [][]string{
		{"-H", "-u", p.URL + "/plants"},
		{"-B", "-u", p.URL + "/plants", "-f", "application/json", "-s", "8192", "-j", credential},
		{"-X", "-u", p.URL + "/plants?limit=1000", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-j", credential},
	} {
		testkit.Launch(t,
			exec.Command(program,
				append(args, "-c", strconv.Itoa(slowClients), "-r", strconv.Itoa(slowClients), "-i", "5", "-l",
					strconv.Itoa(length))...))
	}
	for deadline := time.Now().Add(20 * time.Second); p.Connections(t) < 3*slowClients; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections, want %d that are slow", p.Connections(t), 3*slowClients)
		}
	}
	beset, first := latency(t, p), p.Memory(t, "VmRSS")
	// Later they may not be there: a head that has not come after 30 s is cut off.
	if n := p.Connections(t); n < 3*slowClients*9/10 {
		t.Errorf("%d connections are left of %d: that was no test of slow clients", n, 3*slowClients)
	}
	again, second := latency(t, p), p.Memory(t, "VmRSS")
	// Other programs have their share of the machine: only what is slower each of three times is slower.
	if most := 10*calm + 200*time.Millisecond; min(beset, again) > most {
		if third := latency(t, p); third > most {
			t.Errorf("p99 of an honest client is %v, %v and %v among slow ones, want %v at most", beset, again, third, most)
		}
	}
	if second > flatMemory || second > first*3/2 && second > flatMemory/2 { // little that doubles is no growth
		t.Errorf("%d MiB and then %d MiB in use among slow clients", first>>20, second>>20)
	}
	t.Logf("p99 %v alone, %v and %v among %d slow clients; %d MiB", calm, beset, again, 3*slowClients, second>>20)

	if *slowFor > 70*time.Second {
		for deadline := time.Now().Add(*slowFor); p.Connections(t) > 3; time.Sleep(100 * time.Millisecond) { // ours, and a probe
			if time.Now().After(deadline) {
				t.Fatalf("%d connections are left after %v", p.Connections(t), *slowFor)
			}
		}
		t.Logf("all cut off; p99 %v, %d MiB", latency(t, p), p.Memory(t, "VmRSS")>>20)
	}
	wantCleanLog(t, p)
}

// latency creates plants, one after the other and every tenth on a new connection, and returns how long all but one in a
// hundred took at most. On a slow machine they are fewer: the slow clients beside them stay for half a minute only.
func latency(t *testing.T, p *testkit.Server) time.Duration {
	t.Helper()
	const most, least, lasts = 300, 50, 8 * time.Second
	begun := time.Now()
	first := begun.UnixNano()
	var took []time.Duration
	for i := 0; i < most && (i < least || time.Since(begun) < lasts); i++ {
		body := fmt.Sprintf(`{"id":%d,"name":"x"}`, first+int64(i))
		start := time.Now()
		if i%10 == 0 {
			testkit.HTTP.CloseIdleConnections()
		}
		if a, err := p.Send("POST", "/plants", body); err != nil || a.Status != 200 {
			t.Fatalf("an honest client: %d %s %v", a.Status, a.Body, err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)*99/100-1].Round(time.Microsecond)
}
