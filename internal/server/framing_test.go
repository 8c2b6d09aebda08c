package server

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	framedGet  = "GET /plants HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"
	framedPost = "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\ncontent-length: 19\r\n\r\n" + `{"id":1,"name":"x"}`
	chunkedTop = "POST /plants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
)

// However the bytes of a stream are cut into reads, it is followed to the same place.
func TestFraming(t *testing.T) {
	for _, test := range []struct {
		what, stream string
		good         bool
	}{
		{"requests without a body", framedGet + framedGet, true},
		{"requests with one", framedPost + framedPost + framedGet, true},
		{"an empty line between requests", framedPost + "\r\n" + framedPost, true},
		{"a body that looks like a head", "POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\nx\ny: z\n \n\n\n" + framedGet, true},
		{"chunks, and what follows them", chunkedTop + "\r\n0\r\n\r\n" + framedPost + "\n\n", true},
		{"a header whose name begins alike", "GET / HTTP/1.1\r\nContent-Length-Of: a, b\r\nTransfer-Encoding-Of: c\r\nT: u\r\n\r\n", true},

		{"a length and chunks", chunkedTop + "Content-Length: 5\r\n\r\n", false},
		{"chunks and a length", "POST / HTTP/1.1\r\nCONTENT-LENGTH: 5\r\ntransfer-encoding:\tidentity\r\n\r\n", false},
		{"two lengths", "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", false},
		{"the same length twice", "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", false},
		{"a list of lengths", "POST / HTTP/1.1\r\nContent-Length: 5, 5\r\n\r\n", false},
		{"a length with a sign", "POST / HTTP/1.1\r\nContent-Length: +5\r\n\r\n", false},
		{"a length that no int64 holds", "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", false},
		{"no length", "POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", false},
		{"a folded header", "GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", false},
		{"a header folded with a tab", "POST / HTTP/1.1\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n", false},
		{"a line that ends with LF", "GET / HTTP/1.1\r\nX: a\nY: b\r\n\r\n", false},
		{"a head that ends with LF", "GET / HTTP/1.1\r\nX: a\r\n\n", false},
		{"a first line that ends with LF", "GET / HTTP/1.1\nX: a\r\n\r\n", false},
	} {
		for _, before := range []string{"", framedPost} {
			f := new(framing)
			whole := f.follow([]byte(before + test.stream))
			if f.broken == test.good || test.good != (whole == len(before+test.stream)) {
				t.Errorf("%s: followed for %d bytes, broken %v", test.what, whole, f.broken)
			}
			if whole < len(before) {
				t.Errorf("%s: the request before is lost", test.what)
			}
			for size := 1; size < 40; size++ {
				f, passed := new(framing), ""
				for rest := []byte(before + test.stream); len(rest) > 0 && !f.broken; {
					n := min(size, len(rest))
					passed += string(rest[:f.follow(rest[:n])])
					rest = rest[n:]
				}
				if f.broken == test.good {
					t.Errorf("%s, %d bytes at a time: broken %v", test.what, size, f.broken)
				}
				if test.good {
					continue
				}
				// The library must not find a request in what it gets of a wrong one.
				in := bufio.NewReader(strings.NewReader(strings.TrimPrefix(passed, before)))
				if r, err := http.ReadRequest(in); err == nil {
					t.Errorf("%s, %d bytes at a time: the library finds %s %s in %q", test.what, size, r.Method, r.URL, passed)
				}
			}
		}
	}
}

// FuzzFraming: whatever is followed to its end, the library reads as the same requests: it finds as many as framing
// has seen ends of, and each body where framing has seen it.
func FuzzFraming(f *testing.F) {
	for _, seed := range []string{framedGet, framedPost, framedPost + framedGet, chunkedTop + "\r\n0\r\n\r\n", "GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", chunkedTop + "Content-Length: 5\r\n\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		in := bufio.NewReader(strings.NewReader(string(stream)))
		var follow framing
		rest := stream
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil || len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
				return // the connection ends here
			}
			left, _ := io.ReadAll(in)
			size := len(rest) - len(left)
			follow.follow(rest[:size])
			if follow.broken {
				return
			}
			if follow.within() {
				t.Fatalf("the library reads %q with a body of %d bytes; framing is within a request: %+v", rest[:size], len(body), follow)
			}
			rest, in = left, bufio.NewReader(strings.NewReader(string(left)))
		}
	})
}

func BenchmarkFraming(b *testing.B) {
	request := fmt.Appendf(nil, "POST /plants HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 19\r\nAuthorization: Bearer plant_%036d\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%s", 0, `{"id":1,"name":"x"}`)
	var f framing
	b.ReportAllocs()
	for b.Loop() {
		if f.follow(request); f.broken {
			b.Fatal("refused")
		}
	}
}
