package conform_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore/internal/conform"
)

// wrongServer is a right server with one defect.
type wrongServer struct {
	defect string
	change func(x *exchange)
	fails  string // the cases that fail, and no other
}

// Each defect in the honest server fails exactly the cases about it.
func TestWrongServers(t *testing.T) {
	for _, w := range []wrongServer{
		{"none", (*exchange).send, ""},
		{"returns the id", replaceResponse(`^{`, `{"id":1,`), "spec-02"},
		{"500 on bad JSON", func(x *exchange) {
			if x.send(); x.status == 400 && !json.Valid([]byte(x.body)) {
				x.status = 500
			}
		}, "spec-26 27 28"},
		{"200 without a token", func(x *exchange) {
			x.authorize(x.Header.Get("Authorization") == "")
		}, "spec-31"},
		{"accepts any token", func(x *exchange) {
			x.authorize(strings.HasPrefix(x.Header.Get("Authorization"), "Bearer "))
		}, "spec-32 33"},
		{"compares the beginning of a token", func(x *exchange) {
			x.authorize(strings.HasPrefix(x.Header.Get("Authorization"), "Bearer "+credential))
		}, "spec-33"},
		{"accepts another scheme", func(x *exchange) {
			x.authorize(strings.HasSuffix(x.Header.Get("Authorization"), " "+credential))
		}, "spec-34"},
		{"float ids", replaceBody(`("id":\d+)\.5`, "$1"), "spec-18"},
		{"ids are double-precision numbers", func(x *exchange) {
			x.body = idMember.ReplaceAllStringFunc(x.body, rounded)
			x.send()
		}, "spec-12"},
		{"ids wrap around", replaceBody(`:(9.*808|-9.*809),`, ":7,"), "spec-15 16"},
		{"refuses negative ids", replaceBody(`"id":-`, `"id":x`), "spec-11 14"},
		{"ids may be strings", replaceBody(`"id":"(\d+)"`, `"id":$1`), "spec-17"},
		{"null is zero", replaceBody(`"id":null`, `"id":0`), "spec-19"},
		{"null is an empty name", replaceBody(`"name":null`, `"name":""`), "spec-22"},
		{"null is no tag", replaceBody(`,"tag":null`, ""), "spec-24"},
		{"makes up an id", replaceBody(`^{"name"`, `{"id":7,"name"`), "spec-20"},
		{"makes up a name", replaceBody(`^({"id":\d+),"tag"`, `$1,"name":"","tag"`), "spec-21"},
		{"converts numbers to text", replaceBody(`:7}`, `:"7"}`), "spec-23 30"},
		{"takes the first tag", replaceBody(`\["shade"\]`, `"shade"`), "spec-25"},
		{"takes the first plant", replaceBody(`^\[(.*)\]`, `$1`), "spec-29"},
		{"accepts incomplete JSON", replaceBody(`"Fern"$`, `"Fern"}`), "spec-28"},
		{"accepts forms", replaceBody(`^id=(\d+)&name=Fern`, `{"id":$1,"name":"Fern"}`), "spec-27"},
		{"makes up a plant", replaceBody(`^$`, `{"id":7,"name":"Fern"}`), "spec-26"},
		{"wants a fixed order of members", replaceBody(`^ .*`, ``), "spec-10"},
		{"loses the tag", replaceResponse(`,"tag":".*"}`, `}`), "spec-01 04 06 07 08 10"},
		{"empty tag becomes none", replaceResponse(`,"tag":""`, ""), "spec-04"},
		{"no tag becomes an empty one", replaceResponse(`"Fern"}`, `"Fern","tag":""}`), "spec-03"},
		{"refuses an empty name", replaceBody(`"name":""`, `"name":7`), "spec-05"},
		{"trims names", replaceResponse(`":" Fern\\n"`, `":"Fern"`), "spec-06"},
		{"normalises Unicode", replaceResponse("e\u0301", "é"), "spec-07"},
		{"escapes HTML", replaceResponse(`\\u0026`, `&amp;`), "spec-08"},
		{"names have 255 characters", replaceResponse(`(x{255})x*`, `$1`), "spec-09"},
		{"201 for 200", func(x *exchange) {
			if x.send(); x.status == 200 {
				x.status = 201
			}
		}, "spec-01 02 03 04 05 06 07 08 09 10 11 12 13 14 30"},
		{"plain-text errors", func(x *exchange) {
			if x.send(); x.status == 400 {
				x.header.Set("Content-Type", "text/plain")
				x.response = "Bad Request\n"
			}
		}, "spec-15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30"},
		{"stores a refused body", func(x *exchange) {
			if x.send(); x.status == 400 {
				refused := *x
				x.body = regexp.MustCompile(`,"tag":7`).ReplaceAllString(x.body, "")
				x.send()
				*x = refused
			}
		}, "spec-30"},
	} {
		t.Run(w.defect, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(w.around(&honestServer{plants: map[int64]honestPlant{}}))
			defer s.Close()
			w.check(t, runCases(t, s.URL, conform.Options{}))
		})
	}
}

// check compares the cases that failed.
func (w wrongServer) check(t *testing.T, r conform.Report) {
	t.Helper()
	got, last := "", ""
	for _, result := range r.Results {
		if result.Outcome == conform.Failed {
			level, number, _ := strings.Cut(result.ID, "-")
			if level != last {
				number = result.ID
			}
			got, last = got+" "+number, level
		}
	}
	if got = strings.TrimSpace(got); got != w.fails {
		t.Errorf("the cases %q fail, want %q\n%s", got, w.fails, failures(r))
	}
	for _, result := range r.Results {
		if result.Outcome == conform.Skipped && slices.Contains(r.Levels, result.Level) {
			t.Errorf("%s was skipped: %s", result.ID, result.Reason)
		}
	}
}

// exchange is a request to a wrong server. It changes what the right server gets, and what it sends.
type exchange struct {
	*http.Request
	right          http.Handler
	body, response string
	status         int
	header         http.Header
}

// around returns a right server with the defect.
func (w wrongServer) around(right http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		x := &exchange{Request: r, right: right, body: string(body)}
		w.change(x)
		x.header.Del("Content-Length")
		for name, values := range x.header {
			out.Header()[name] = values
		}
		out.WriteHeader(x.status)
		io.WriteString(out, x.response)
	})
}

// send sends the request to the right server.
func (x *exchange) send() {
	x.Body, x.ContentLength = io.NopCloser(strings.NewReader(x.body)), int64(len(x.body))
	recorder := httptest.NewRecorder()
	x.right.ServeHTTP(recorder, x.Request)
	x.status, x.header, x.response = recorder.Code, recorder.Header(), recorder.Body.String()
}

// authorize sends the request, with a valid credential if it is to be accepted.
func (x *exchange) authorize(accept bool) {
	if accept {
		x.Header.Set("Authorization", "Bearer "+credential)
	}
	x.send()
}

// replaceBody is a change of the body of requests.
func replaceBody(pattern, by string) func(x *exchange) {
	return func(x *exchange) {
		x.body = regexp.MustCompile(pattern).ReplaceAllString(x.body, by)
		x.send()
	}
}

// replaceResponse is a change of the body of responses with status 200.
func replaceResponse(pattern, by string) func(x *exchange) {
	return func(x *exchange) {
		if x.send(); x.status == 200 {
			x.response = regexp.MustCompile(pattern).ReplaceAllString(x.response, by)
		}
	}
}

var idMember = regexp.MustCompile(`-?\d{15,}`)

// rounded returns the nearest integer that a double-precision number can be, if that is an int64.
func rounded(id string) string {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || float64(n) >= 1<<63 {
		return id
	}
	return strconv.FormatInt(int64(float64(n)), 10)
}
