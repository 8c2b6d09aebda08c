package httpapi

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// reader returns one byte, then an error.
type reader struct{ err error }

func (r reader) Read(p []byte) (int, error) { return copy(p, "{"), r.err }

// chunked hides the length of a body.
type chunked struct{ io.Reader }

func TestBodyLimit(t *testing.T) {
	const limit = 5000
	for n, ok := range map[int]bool{limit - 1: true, limit: true, limit + 1: false, 3 * limit: false} {
		body := `{"id":1,"name":"` + strings.Repeat("x", n-18) + `"}`
		for _, r := range []io.Reader{strings.NewReader(body), chunked{strings.NewReader(body)}} {
			a, _ := newAPI(Config{MaxBody: limit}, Dependencies{Create: ferns().Create})
			w := send(a, "POST", "/plants", r)
			size := fmt.Sprint(n)
			if _, unknown := r.(chunked); unknown {
				size = "more"
			}
			if ok {
				wantResponse(t, w, 200, `{"name":"`+strings.Repeat("x", n-18)+`"}`)
			} else {
				wantError(t, w, 40017, "the body must have at most 5000 bytes, but has "+size)
			}
		}
	}
}

func TestBodyBreaks(t *testing.T) {
	for err, want := range map[error]string{
		os.ErrDeadlineExceeded: `{"error":40023,"message":"the body did not arrive in time"}`,
		io.ErrUnexpectedEOF:    `{"error":40022,"message":"the body ended early or its framing is invalid"}`,
	} {
		s := ferns()
		wantResponse(t, send(newStorageAPI(s), "POST", "/plants", reader{err}), 400, want)
		wantCalls(t, s)
	}
}

func TestContentType(t *testing.T) {
	const wrong = "Content-Type must be application/json, but is "
	const params = "Content-Type must have no parameter except charset=utf-8, but is "
	for _, test := range []struct {
		values  []string
		number  int // 0 for success
		message string
	}{
		{[]string{"application/json"}, 0, ""},
		{[]string{"Application/JSON"}, 0, ""},
		{[]string{"application/json; charset=utf-8"}, 0, ""},
		{[]string{`application/json;charset="UTF-8"`}, 0, ""},
		{nil, 40018, "Content-Type is required and must be application/json"},
		{[]string{""}, 40019, wrong + `""`},
		{[]string{"text/plain"}, 40019, wrong + `"text/plain"`},
		{[]string{"application/json5"}, 40019, wrong + `"application/json5"`},
		{[]string{"application/json; charset"}, 40019, wrong + `"application/json; charset"`},
		{[]string{"application/json; charset=latin1"}, 40019, params + `"application/json; charset=latin1"`},
		{[]string{"application/json; version=utf-8"}, 40019, params + `"application/json; version=utf-8"`},
		{[]string{"application/json", "application/json"}, 40020, "Content-Type appears more than once; send it once"},
	} {
		err := checkType(test.values)
		if test.number == 0 {
			if err != nil {
				t.Errorf("checkType(%q) = %v", test.values, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("checkType(%q) = nil", test.values)
		} else if f, message := classify(err); f.Number != int32(test.number) || message != test.message {
			t.Errorf("checkType(%q) = %d %s, want %d %s", test.values, f.Number, message, test.number, test.message)
		}
	}
	s := ferns()
	w := send(newStorageAPI(s), "PUT", "/plants/1", strings.NewReader(fern), "Content-Type", "application/json")
	wantError(t, w, 40020, "Content-Type appears more than once; send it once")
	wantCalls(t, s)
}

func TestContentEncoding(t *testing.T) {
	for encoding, ok := range map[string]bool{"identity": true, "Identity": true, "gzip": false, "": false} {
		s := ferns()
		w := send(newStorageAPI(s), "POST", "/plants", strings.NewReader(`{"id":1,"name":"x"}`), "Content-Encoding", encoding)
		if ok {
			wantResponse(t, w, 200, `{"name":"x"}`)
			continue
		}
		wantError(t, w, 40021, fmt.Sprintf("Content-Encoding must be absent or identity, but is %q", encoding))
		wantCalls(t, s)
	}
}
