package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fake is a service that keeps its promises, except for the responses that a test sets.
type fake struct {
	*service
	http *httptest.Server

	mu        sync.Mutex
	plants    map[int64]string
	creates   int            // and changes
	responses []fakeResponse // to the next creates, which are not stored
	always    *fakeResponse  // to every create
	list      *fakeResponse  // to every list
	dieAfter  int            // creates, if not 0
	requests  []string       // the authorization and the content type of each request
}

type fakeResponse struct {
	status int
	body   string
	header http.Header
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{plants: map[int64]string{}}
	f.http = httptest.NewServer(f)
	t.Cleanup(f.http.Close)
	f.service = newService(f.http.URL, "secret")
	return f
}

// locked runs do while no request is being served.
func (f *fake) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type"))
	send := func(a fakeResponse) {
		maps.Copy(w.Header(), a.header)
		w.WriteHeader(a.status)
		io.WriteString(w, a.body)
	}
	if r.Method == "GET" {
		if f.list != nil {
			send(*f.list)
			return
		}
		send(f.page(r))
		return
	}
	if f.creates++; f.dieAfter > 0 && f.creates > f.dieAfter {
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(r.Body)
	switch {
	case f.always != nil:
		send(*f.always)
	case len(f.responses) > 0:
		a := f.responses[0]
		f.responses = f.responses[1:]
		send(a)
	case r.Method != "POST":
		send(f.change(r.Method, strings.TrimPrefix(r.URL.Path, "/plants/"), string(body)))
	default:
		send(f.create(string(body)))
	}
}

func (f *fake) change(method, path, body string) fakeResponse {
	id, err := strconv.ParseInt(path, 10, 64)
	if _, ok := f.plants[id]; err != nil || !ok {
		return fakeResponse{status: 404, body: `{"error":40401,"message":"x"}`}
	}
	if method == "DELETE" {
		delete(f.plants, id)
		return fakeResponse{status: 204}
	}
	f.plants[id] = body
	return fakeResponse{status: 200, body: body}
}

func (f *fake) create(body string) fakeResponse {
	refuse := func(number int) fakeResponse {
		return fakeResponse{status: number / 100, body: `{"error":` + strconv.Itoa(number) + `,"message":"x"}`}
	}
	var p struct {
		ID   *int64
		Name *string
		Tag  *string
	}
	if json.Unmarshal([]byte(body), &p) != nil || p.ID == nil || p.Name == nil ||
		strings.Contains(body, `"tag":null`) || strings.Count(body, `"name"`) > 1 {
		return refuse(40011)
	}
	if old, ok := f.plants[*p.ID]; ok && old != body {
		return refuse(40009)
	}
	f.plants[*p.ID] = body
	_, rest, _ := strings.Cut(body, ",")
	return fakeResponse{status: 200, body: "{" + rest}
}

func (f *fake) page(r *http.Request) fakeResponse {
	const size = 2
	ids := slices.Sorted(maps.Keys(f.plants))
	if after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64); err == nil {
		ids = slices.DeleteFunc(ids, func(id int64) bool { return id <= after })
	}
	a := fakeResponse{status: 200, header: http.Header{}}
	if len(ids) > size {
		ids = ids[:size]
		a.header.Set("Link", `</plants>; rel="next"`)
	}
	var page []string
	for _, id := range ids {
		page = append(page, f.plants[id])
	}
	a.body = "[" + strings.Join(page, ",") + "]"
	return a
}

// The clients create plants of every kind until the service is gone, and the ledger agrees with the service.
func TestDrive(t *testing.T) {
	f := newFake(t)
	f.dieAfter = 220
	path := filepath.Join(t.TempDir(), "ledger")
	silent := "http://127.0.0.1:1"
	args := []string{"drive", "--url", f.http.URL + "," + silent, "--ledger", path, "--clients", "4", "--edits"}
	if err := run(t.Context(), args, "secret", io.Discard); err != nil {
		t.Fatal(err)
	}
	l, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.close()
	counts := map[string]int{}
	for _, a := range l.attempts {
		counts[string(a.kind)+" "+string(a.outcome)]++
	}
	for _, want := range []string{"fresh ACK", "again ACK", "wrong REFUSED", "taken REFUSED", "edit ACK", "drop ACK"} {
		if counts[want] < 4 {
			t.Errorf("%d attempts are %s, want at least 4: %v", counts[want], want, counts)
		}
	}
	// Each client ends when neither service responds. Two of them start with the one that never does.
	if len(l.attempts) != 220+2+4*2 {
		t.Errorf("%d attempts, want 230: %v", len(l.attempts), counts)
	}
	f.locked(func() {
		f.dieAfter = 0
		for _, r := range f.requests {
			if r != "Bearer secret application/json" && r != "Bearer secret " { // a remove has no body
				t.Errorf("a request has %q", r)
			}
		}
	})
	var out bytes.Buffer
	if err := run(t.Context(), []string{"verify", "--url", f.http.URL, "--ledger", path}, "secret", &out); err != nil {
		t.Errorf("verify: %v\n%s", err, out.String())
	}
	f.locked(func() {
		for id := range f.plants {
			delete(f.plants, id)
			break
		}
	})
	err = run(t.Context(), []string{"verify", "--url", f.http.URL, "--ledger", path}, "secret", &out)
	if err == nil || !strings.Contains(err.Error(), "1 violations, the first: ") {
		t.Errorf("verify without a plant: %v", err)
	}
}

// A refusal or an unknown outcome does not end a client.
func TestDriveContinues(t *testing.T) {
	f := newFake(t)
	f.dieAfter = 20
	f.responses = []fakeResponse{
		{status: 503, body: `{"error":50301,"message":""}`},
		{status: 503, body: `{"error":50302,"message":""}`},
		{status: 502},
	}
	l := ledgerWith(t)
	if err := drive(t.Context(), []*service{f.service}, l, 1, false); err != nil {
		t.Fatal(err)
	}
	l, err := open(l.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if got := len(l.attempts); got != 21 {
		t.Errorf("%d attempts, want 21", got)
	}
}

func TestDriveNeedsItsFile(t *testing.T) {
	f := newFake(t)
	l := ledgerWith(t)
	l.close()
	if err := drive(t.Context(), []*service{f.service}, l, 2, false); err == nil {
		t.Error("no error with a closed file")
	}
	f.locked(func() {
		if f.creates != 0 {
			t.Errorf("%d requests without an intent on disk", f.creates)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	for _, args := range [][]string{
		nil, {"grow", "--ledger", path}, {"drive", "--fish"}, {"verify", "--ledger", filepath.Join(path, "x", "y")},
		{"verify", "--ledger", path, "--url", "http://127.0.0.1:1"},
	} {
		if err := run(t.Context(), args, "secret", io.Discard); err == nil {
			t.Errorf("run(%q) succeeds", args)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		status   int
		body     string
		outcome  outcome
		response string
	}{
		{200, `{"name":"a"}`, acked, `{"name":"a"}`},
		{200, "{\"name\":\"a\"}\n", acked, `{"name":"a"}`},
		{201, `{"name":"a"}`, unknown, "201"},
		{400, `{"error":40009,"message":""}`, refused, "40009"},
		{401, `{"error":40101,"message":""}`, unknown, "40101"},
		{503, `{"error":50301,"message":""}`, refused, "50301"},
		{503, `{"error":50302,"message":""}`, unknown, "50302"},
		{503, `{"error":50303,"message":""}`, refused, "50303"},
		{503, `{"error":50304,"message":""}`, refused, "50304"},
		{503, `{"error":50305,"message":""}`, refused, "50305"},
		{503, `{"error":50306,"message":""}`, unknown, "50306"},
		{500, `{"error":50001,"message":""}`, unknown, "50001"},
		{503, `{"error":40009,"message":""}`, unknown, "503"},
		{503, `gone`, unknown, "503"},
	} {
		if got, response := classify(test.status, []byte(test.body)); got != test.outcome || response != test.response {
			t.Errorf("classify(%d, %s) = %s %s, want %s %s",
				test.status, test.body, got, response, test.outcome, test.response)
		}
	}
}

// Attempts have every kind of tag, and those that are to be refused would be.
func TestCompose(t *testing.T) {
	f, stored := newFake(t), compose(1, nil, true)
	f.create(stored.body)
	tags, ids := map[string]bool{}, map[int64]bool{}
	kinds, largest := map[kind]int{}, 0
	for n := int64(2); n <= 400; n++ {
		a := compose(n, stored, false)
		kinds[a.kind]++
		largest = max(largest, len(a.body))
		want := map[kind]int{fresh: 200, again: 200, wrong: 400, taken: 400}[a.kind]
		if got := f.create(a.body); got.status != want {
			t.Errorf("attempt %d (%s): %d %s", n, a.kind, got.status, got.body)
		}
		repeats := a.kind == again || a.kind == taken
		if repeats != (a.id == stored.id) || a.n != n || a.kind == again && a.body != stored.body {
			t.Errorf("attempt %d (%s) has number %d and id %d", n, a.kind, a.n, a.id)
		}
		if ids[a.id] && a.id != stored.id {
			t.Errorf("attempt %d repeats id %d", n, a.id)
		}
		ids[a.id] = true
		switch {
		case !strings.Contains(a.body, `"tag"`):
			tags["none"] = true
		case strings.Contains(a.body, `"tag":""`):
			tags["empty"] = true
		case strings.Contains(a.body, `"tag":"tag`):
			tags["text"] = true
		}
	}
	if len(tags) != 3 || largest < 8000 {
		t.Errorf("tags %v, the largest body has %d bytes", tags, largest)
	}
	if kinds[wrong] != 40 || kinds[again] != 40 || kinds[taken] != 20 {
		t.Errorf("kinds %v, want 40 wrong, 40 again and 20 taken", kinds)
	}
	if a := compose(6, nil, true); a.kind != fresh {
		t.Errorf("without an acknowledged plant attempt 6 is %s", a.kind)
	}
	if a := compose(19, nil, true); a.kind != fresh {
		t.Errorf("without an acknowledged plant attempt 19 is %s", a.kind)
	}
}
