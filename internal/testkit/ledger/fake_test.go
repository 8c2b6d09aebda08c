package ledger

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"plantstore/internal/testkit"
)

// fake is a service that keeps its promises, except for the responses that a test sets.
type fake struct {
	testkit.Target

	mu        sync.Mutex
	plants    map[int64]string
	writes    int
	responses []fakeResponse // to the next writes, which are not stored
	always    *fakeResponse  // to every write
	list      *fakeResponse  // to every list
	header    http.Header    // of the last request
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
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.respond(r)
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

func (f *fake) respond(r *http.Request) fakeResponse {
	f.header = r.Header
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path == "/plants" && r.Method == "GET" && f.list != nil:
		return *f.list
	case r.URL.Path == "/plants" && r.Method == "GET":
		return fakeResponse{status: 200, body: "[" + strings.Join(slices.Collect(maps.Values(f.plants)), ",") + "]"}
	case r.Method == "GET":
		return f.one(r, "")
	}
	f.writes++
	switch {
	case f.always != nil:
		return *f.always
	case len(f.responses) > 0:
		a := f.responses[0]
		f.responses = f.responses[1:]
		if a.status == 0 {
			panic(http.ErrAbortHandler)
		}
		return a
	case r.Method == "POST":
		return f.create(string(body))
	}
	return f.one(r, string(body))
}

// one reads, replaces or removes a plant.
func (f *fake) one(r *http.Request, body string) fakeResponse {
	id, _ := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/plants/"), 10, 64)
	old, ok := f.plants[id]
	switch {
	case !ok:
		return failure(notFound)
	case r.Method == "GET":
		return fakeResponse{status: 200, body: old}
	case r.Method == "DELETE":
		delete(f.plants, id)
		return fakeResponse{status: 204}
	}
	f.plants[id] = body
	return fakeResponse{status: 200, body: body}
}

func (f *fake) create(body string) fakeResponse {
	var p struct {
		ID        *int64
		Name, Tag *string
	}
	if json.Unmarshal([]byte(body), &p) != nil || p.ID == nil || p.Name == nil ||
		strings.Contains(body, `"tag":null`) || strings.Count(body, `"name"`) > 1 {
		return failure(40011)
	}
	if old, ok := f.plants[*p.ID]; ok && old != body {
		return failure(40009)
	}
	f.plants[*p.ID] = body
	_, rest, _ := strings.Cut(body, ",")
	return fakeResponse{status: 200, body: "{" + rest}
}
