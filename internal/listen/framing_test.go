package listen

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	getPlants = "GET /plants HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"
	postPlant = "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\ncontent-length: 19\r\n\r\n" +
		`{"id":1,"name":"x"}`
	start    = "POST /plants HTTP/1.1\r\nHost: x\r\n"
	chunked  = start + "Transfer-Encoding: chunked\r\n"
	noChunks = chunked + "\r\n0\r\n\r\n"
)

var streams = []struct {
	name, stream string
	passes       bool
}{
	{"requests without a body", getPlants + getPlants, true},
	{"requests with a body", postPlant + postPlant + getPlants, true},
	{"an empty line between requests", postPlant + "\r\n" + postPlant, true},
	{"a body that looks like a head", start + "Content-Length: 11\r\n\r\nx\ny: z\n \n\n\n" + getPlants, true},
	{"no chunks", noChunks + postPlant, true},
	{"chunks", chunked + "\r\n3\r\nabc\r\n0000010\r\n0123456789\n\r\n\nab\r\n0\r\n\r\n" + postPlant, true},
	{"chunks with extensions", chunked + "\r\nA;a=b; c=\"d;e\"\r\n0123456789\r\n00;x\r\n\r\n" + postPlant, true},
	{"trailers", chunked + "\r\n0\r\nX: a\r\nContent-Length: 9\r\n\r\n" + postPlant, true},
	{"the largest chunk", chunked + "\r\n07fffffffffffffff\r\n" + getPlants + "\n", true},
	{"a chunk in upper case", chunked + "\r\nB\r\n0123456789a\r\n0\r\n\r\n" + postPlant, true},
	{"headers with similar names", start + "Content-Length-Of: a, b\r\nTransfer-Encoding-Of: c\r\nT: u\r\n\r\n", true},
	{"a header that is shorter", start + "Content: 1\r\nTransfer: 2\r\n\r\n" + getPlants, true},
	{"a similar header of the same length", start + "Content-Lengti: 7\r\nTransfer-Encodinh: y\r\n\r\n" + getPlants, true},
	{"a length with white space", start + "Content-Length: \t 2 \t\r\n\r\nab" + getPlants, true},
	{"header names without a colon", start + "Content-Length\r\nTransfer-Encoding\r\n\r\n" + getPlants, true},
	{"a length of zero", start + "Content-Length: 0\r\n\r\n" + getPlants, true},
	{"a length with a zero", start + "Content-Length: 10\r\n\r\n0123456789" + getPlants, true},
	{"the largest length", start + "Content-Length: 999999999999999999\r\n\r\n" + getPlants + "\n", true},

	{"a transfer coding, then a length", chunked + "Content-Length: 5\r\n\r\n", false},
	{"a length, then a transfer coding", start + "CONTENT-LENGTH: 5\r\ntransfer-encoding:\tidentity\r\n\r\n", false},
	{"two lengths", start + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", false},
	{"the same length twice", start + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", false},
	{"a list of lengths", start + "Content-Length: 5, 5\r\n\r\n", false},
	{"a list of lengths with spaces", start + "Content-Length:  10 , 10\r\n\r\n", false},
	{"a length with a leading zero", start + "Content-Length: 010\r\n\r\n", false},
	{"a length of two zeros", start + "Content-Length: 00\r\n\r\n", false},
	{"a length with an underscore", start + "Content-Length: 1_0\r\n\r\n", false},
	{"a length with a sign", start + "Content-Length: +5\r\n\r\n", false},
	{"a length with a character before the digits", start + "Content-Length: 5/\r\n\r\n", false},
	{"a length with a character after the digits", start + "Content-Length: 5:\r\n\r\n", false},
	{"a length of 19 digits", start + "Content-Length: 1000000000000000000\r\n\r\n", false},
	{"an empty length", start + "Content-Length:\r\n\r\n", false},
	{"a folded header", start + "X: a\r\n b\r\n\r\n", false},
	{"a header folded with a tab", start + "Transfer-Encoding:\r\n\tchunked\r\n\r\n", false},
	{"a header line that ends with LF", start + "X: a\nY: b\r\n\r\n", false},
	{"a head that ends with LF", start + "X: a\r\n\n", false},
	{"a request line that ends with LF", "GET / HTTP/1.1\nX: a\r\n\r\n", false},
	{"an LF between requests", getPlants + "\n" + getPlants, false},

	{"a chunk size that ends with LF", chunked + "\r\n3\nabc\r\n0\r\n\r\n", false},
	{"an extension that ends with LF", chunked + "\r\n3;a=b\nabc\r\n0\r\n\r\n", false},
	{"an extension with CR", chunked + "\r\n3;a\rb\r\nabc\r\n0\r\n\r\n", false},
	{"an extension after a space", chunked + "\r\n3 ;a\r\nabc\r\n0\r\n\r\n", false},
	{"a chunk size with a space", chunked + "\r\n3 \r\nabc\r\n0\r\n\r\n", false},
	{"a chunk size with a prefix", chunked + "\r\n0x3\r\nabc\r\n0\r\n\r\n", false},
	{"a chunk size with a sign", chunked + "\r\n+3\r\nabc\r\n0\r\n\r\n", false},
	{"a chunk size with an underscore", chunked + "\r\n0_3\r\nabc\r\n0\r\n\r\n", false},
	{"a chunk size that is not hexadecimal", chunked + "\r\ng\r\nabc\r\n0\r\n\r\n", false},
	{"a chunk size of 64 bits", chunked + "\r\n8000000000000000\r\n\r\n0\r\n\r\n", false},
	{"an empty chunk size", chunked + "\r\n;a\r\nabc\r\n0\r\n\r\n", false},
	{"a chunk that ends with LF", chunked + "\r\n3\r\nabc\n0\r\n\r\n", false},
	{"a chunk that is too long", chunked + "\r\n3\r\nabcd\r\n0\r\n\r\n", false},
	{"LF after the last chunk", chunked + "\r\n0\r\n\n" + getPlants, false},
	{"a last chunk that ends with LF", chunked + "\r\n0\n\r\n" + getPlants, false},
	{"a trailer that ends with LF", chunked + "\r\n0\r\nX: a\nY: b\r\n\r\n", false},
	{"LF after the trailers", chunked + "\r\n0\r\nX: a\r\n\n" + getPlants, false},
	{"a folded trailer", chunked + "\r\n0\r\nX: a\r\n b\r\n\r\n", false},
	{"a trailer with CR", chunked + "\r\n0\r\nX: a\rY: b\r\n\r\n", false},
	{"LF between a chunked request and the next", noChunks + "\n" + getPlants, false},
}

// However the bytes of a stream are cut into reads, the verdict is the same.
func TestFraming(t *testing.T) {
	for _, test := range streams {
		for _, before := range []string{"", postPlant} {
			c, stream := new(framing), []byte(before+test.stream)
			n := c.check(stream)
			if c.broken == test.passes || test.passes != (n == len(stream)) {
				t.Errorf("%s: Check() = %d of %d bytes, Broken() = %v", test.name, n, len(stream), c.broken)
			}
			if n < len(before) {
				t.Errorf("%s: Check() = %d, less than the %d bytes of the request before", test.name, n, len(before))
			}
			for cut := 1; cut < len(stream); cut++ {
				checkInPieces(t, test.name, before, test.passes, stream[:cut], stream[cut:])
			}
			checkInPieces(t, test.name, before, test.passes, slices.Collect(slices.Chunk(stream, 1))...)
		}
	}
}

func checkInPieces(t *testing.T, name, before string, passes bool, pieces ...[]byte) {
	t.Helper()
	c, passed := new(framing), ""
	name = fmt.Sprintf("%s, cut after %d bytes", name, len(pieces[0]))
	for _, piece := range pieces {
		wasBroken := c.broken
		ok := c.check(piece)
		if passed += string(piece[:ok]); wasBroken && ok > 0 {
			t.Errorf("%s: Check() = %d after a fault", name, ok)
		}
	}
	if c.broken == passes {
		t.Errorf("%s: Broken() = %v", name, c.broken)
	}
	if passes {
		return
	}
	// net/http must not find the ambiguous request in what it gets. Complete ones may precede it.
	for _, complete := range []string{before, getPlants, noChunks} {
		passed = strings.TrimPrefix(passed, complete)
	}
	in := bufio.NewReader(strings.NewReader(passed))
	if r, err := readRequest(in); err == nil {
		t.Errorf("%s: net/http finds %s %s in %q", name, r.Method, r.URL, passed)
	}
}

// readRequest reads a request and its body.
func readRequest(in *bufio.Reader) (*http.Request, error) {
	r, err := http.ReadRequest(in)
	if err == nil {
		_, err = io.ReadAll(r.Body)
	}
	return r, err
}

func TestInRequest(t *testing.T) {
	var c framing
	for _, step := range []struct {
		bytes string
		want  bool
	}{
		{"", false}, {"\r\n", false}, {"P", true}, {"OST / HTTP/1.1\r\n", true}, {"Content-Length: 2\r\n", true},
		{"\r\n", true}, {"a", true}, {"b", false}, {getPlants, false}, {"GET / HTTP/1.1\r\n", true},
		{"\r", true}, {"\n", false},
		{chunked, true}, {"\r\n", true}, {"1\r\n", true}, {"a", true}, {"\r\n", true}, {"0\r\n", true}, {"X: a\r\n", true},
		{"\r\n", false},
	} {
		if c.check([]byte(step.bytes)); c.inRequest() != step.want {
			t.Errorf("after %q: InRequest() = %v, want %v", step.bytes, c.inRequest(), step.want)
		}
	}
}

// FuzzFraming checks that net/http reads every stream that passes as the same requests: it finds as many as the
// framing, and each body ends in the same place.
func FuzzFraming(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s.stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		in := bufio.NewReader(strings.NewReader(string(stream)))
		var c framing
		rest := stream
		for {
			r, err := readRequest(in)
			if err != nil || !r.ProtoAtLeast(1, 1) {
				return // the connection ends here
			}
			left, _ := io.ReadAll(in)
			size := len(rest) - len(left)
			if c.check(rest[:size]); c.broken {
				return
			}
			if c.inRequest() {
				t.Fatalf("net/http reads %q as a request; the framing is within one: %+v", rest[:size], c)
			}
			rest, in = left, bufio.NewReader(strings.NewReader(string(left)))
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	request := fmt.Appendf(nil, "POST /plants HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: Go-http-client/1.1\r\n"+
		"Content-Length: 19\r\nAuthorization: Bearer plant_%036d\r\nContent-Type: application/json\r\n"+
		"Accept-Encoding: gzip\r\n\r\n%s", 0, `{"id":1,"name":"x"}`)
	var c framing
	b.ReportAllocs()
	for b.Loop() {
		if c.check(request); c.broken {
			b.Fatal("refused")
		}
	}
}
