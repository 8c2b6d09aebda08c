package ledger

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// fake is a service that stores whatever it is sent, except for the responses that a test sets.
type fake struct {
	testkit.Target
	plants    map[int64]string
	responses []fakeResponse // to the next writes, which are not stored
	always    *fakeResponse  // to every write
}

type fakeResponse struct {
	status int
	body   string
	header http.Header
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{plants: map[int64]string{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.Target = testkit.Target{URL: server.URL, Token: "secret"}
	return f
}

func failure(number int) fakeResponse {
	header := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"1"}}
	return fakeResponse{number / 100, fmt.Sprintf(`{"error":%d,"message":"x"}`, number), header}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := f.respond(r)
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

func (f *fake) respond(r *http.Request) fakeResponse {
	text, _ := io.ReadAll(r.Body)
	body := string(text)
	switch {
	case r.Method == "GET":
		return fakeResponse{status: 200, body: "[" + strings.Join(slices.Collect(maps.Values(f.plants)), ",") + "]"}
	case f.always != nil:
		return *f.always
	case len(f.responses) > 0:
		a := f.responses[0]
		f.responses = f.responses[1:]
		return a
	case !strings.Contains(body, `"name"`):
		return failure(40011)
	}
	start, rest, _ := strings.Cut(body, ",")
	id, _ := strconv.ParseInt(strings.TrimPrefix(start, `{"id":`), 10, 64)
	f.plants[id] = body
	if r.Method == "POST" {
		body = "{" + rest
	}
	return fakeResponse{status: 200, body: body}
}
