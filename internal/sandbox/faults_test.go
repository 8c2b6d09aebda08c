package sandbox

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stored reports whether a plant is in the store.
func (b *store) stored(t *testing.T, id int64) bool {
	t.Helper()
	_, err := b.disk.Get(t.Context(), b.Store, id)
	return err == nil
}

// A fault replaces the response to a create, before or after it is stored. The repeated create succeeds.
func TestFaults(t *testing.T) {
	s := start(t, Config{Max: 10})
	b := s.sandbox(t, `{"seed":"empty"}`)
	const notHandled = 0
	for i, test := range []struct {
		prefer  string
		code    int // of the response; 0: there is none
		stored  bool
		applied string
		rule    string
	}{
		{"code=503", 50301, false, "code=503", `{"code":503}`},
		{"code=503; when=before", 50301, false, "code=503", `{"code":503,"when":"before"}`},
		{"code=50304", 50304, false, "code=50304", `{"code":50304}`},
		{"code=429", 42901, false, "code=429", `{"code":429}`},
		{"code=401", 40101, false, "code=401", `{"code":401}`},
		{"code=502", 50201, false, "code=502", `{"code":502}`},
		{`Code="504"`, 50401, false, "code=504", `{"code":504.0}`},
		{"code=500; when=after", 50001, true, "code=500; when=after", `{"code":500,"when":"after"}`},
		{"code=503;when=after", 50302, true, "code=503; when=after", `{"code":503,"when":"after"}`},
		{"code=503, when=after", 50302, true, "code=503; when=after", `{"code":50302,"when":"after"}`},
		{"drop", notHandled, false, "drop", `{"drop":true}`},
		{"drop=true; when=after", notHandled, true, "drop; when=after", `{"drop":true,"when":"after"}`},
		{"delay=0", 200, true, "delay=0", `{"delay":0}`},
		{"code=503; delay=1; other=2; when=before", 50301, false, "code=503, delay=1", `{"delay":1,"code":503}`},
		{"delay=1, drop; when=after", notHandled, true, "delay=1, drop; when=after",
			`{"delay":1,"drop":true,"when":"after"}`},
		{`respond-async, wait="a, code=400", x; code=400, code=503, code=500`, 50301, false, "code=503", `{"code":503}`},
		{"code=503, code=500; when=after", 50301, false, "code=503", ""},
		{"x; code=503, y=code=503, when=after, count=exact", 200, true, "", ""},
	} {
		id := int64(2 * i)
		body := newPlant(int(id), "x")
		w := b.do("POST", "/plants", body, "Prefer", test.prefer)
		want(t, test.prefer, w, test.code)
		if got := w.Header().Get("Preference-Applied"); w.Code != 0 && got != test.applied {
			t.Errorf("%s: Preference-Applied %q, want %q", test.prefer, got, test.applied)
		}
		if status := w.Code; (status == 429 || status == 503) != (w.Header().Get("Retry-After") == "1") {
			t.Errorf("%s: Retry-After %q", test.prefer, w.Header().Get("Retry-After"))
		}
		if b.stored(t, id) != test.stored {
			t.Errorf("%s: stored: %v", test.prefer, !test.stored)
		}
		want(t, test.prefer+" again", b.do("POST", "/plants", body), 200)
		if test.rule == "" {
			continue
		}

		rule := strings.TrimSuffix(test.rule, "}") + `,"method":"POST","path":"/plants","times":1}`
		want(t, rule, b.do("PUT", "/faults", "["+rule+"]"), 200)
		want(t, "another operation", b.do("GET", "/plants/-9", ""), 40401)
		body = newPlant(int(id+1), "x")
		want(t, rule, b.do("POST", "/plants", body), test.code)
		if b.stored(t, id+1) != test.stored {
			t.Errorf("%s: stored: %v", rule, !test.stored)
		}
		want(t, rule+" used up", b.do("POST", "/plants", body), 200)
	}
}

// Half of a response has the Content-Length of the whole. A change that is not made has no response but an Error.
func TestTruncate(t *testing.T) {
	s := start(t, Config{Max: 10})
	b := s.sandbox(t, "")
	const busy = `{"error":50301,"message":"too many writes are waiting"}`
	for _, test := range []struct {
		method, path, body, prefer string
		status                     int
		number                     int32
		half                       string
	}{
		{"GET", "/plants/1", "", "truncate", 200, 0, `{"id":1,"name":"Monstera deliciosa","tag":"climber"}`},
		{"GET", "/plants/99", "", "truncate", 404, 40401, `{"error":40401,"message":"plant 99 does not exist"}`},
		{"POST", "/plants", newPlant(100, "x"), "truncate; when=after", 200, 0, `{"name":"x"}`},
		{"POST", "/plants", newPlant(101, "x"), "truncate", 503, 50301, busy},
		{"POST", "/plants", "{", "truncate; when=after", 400, 40002, ``},
		{"DELETE", "/plants/2", "", "truncate; when=after", 0, 0, ""},
		{"HEAD", "/plants/1", "", "truncate", 0, 0, ""},
		{"DELETE", "/plants/3", "", "truncate", 503, 50301, busy},
	} {
		w := b.do(test.method, test.path, test.body, "Prefer", test.prefer)
		got := w.Body.String()
		if length := w.Header().Get("Content-Length"); w.Code != test.status || test.half != "" &&
			(got != test.half[:len(test.half)/2] || length != fmt.Sprint(len(test.half))) {
			t.Errorf("%s %s with %s: %d %s of %s bytes", test.method, test.path, test.prefer, w.Code, got, length)
		}
		if e := b.requests(t, "?limit=1")[0]; e.Status != test.status || e.Error != test.number {
			t.Errorf("%s %s with %s: status %d and error %d are recorded", test.method, test.path, test.prefer, e.Status,
				e.Error)
		}
	}
	s.disk.list = func() error { return errors.New("an error without a number") }
	w := b.do("GET", "/plants", "", "Prefer", "truncate")
	if e := b.requests(t, "?limit=1")[0]; w.Code != 500 || e.Error != 50001 {
		t.Errorf("after a failure of the service: status %d, and error %d is recorded", w.Code, e.Error)
	}
	for id, stored := range map[int64]bool{100: true, 101: false, 2: false, 3: true} {
		if b.stored(t, id) != stored {
			t.Errorf("plant %d is stored: %v", id, !stored)
		}
	}
}

func TestFaultIsRefused(t *testing.T) {
	s := start(t, Config{Max: 10})
	b := s.sandbox(t, "")
	const noError = "code must be a status or an error code of this API, such as 503 or 42901, but is "
	const onlyAfter = "code with when=after must be 500 or 503, but is "
	for prefer, problem := range map[string]string{
		"code=200":                     noError + "200",
		"code=x":                       "code must be an integer from 1 to 2147483647",
		"code":                         "code must be an integer from 1 to 2147483647",
		"delay=-1":                     "delay must be an integer from 0 to 30000",
		"delay=30001":                  "delay must be an integer from 0 to 30000",
		"delay=1.5":                    "delay must be an integer from 0 to 30000",
		"drop=1":                       "drop must be true",
		"code=503; delay=x":            "delay must be an integer from 0 to 30000",
		"truncate=no":                  "truncate must be true",
		"drop; when=later":             "when must be before or after",
		"when=later":                   "when must be before or after",
		"drop, truncate":               "code, drop and truncate exclude each other; send one of them",
		"code=503, drop":               "code, drop and truncate exclude each other; send one of them",
		"code=400; when=after":         onlyAfter + "400",
		"code=50301; when=after":       onlyAfter + "50301",
		"delay=1, code=502;when=after": onlyAfter + "502",
	} {
		got := want(t, prefer, b.do("POST", "/plants", newPlant(50, "x"), "Prefer", prefer), 40036)
		if !strings.Contains(got, "the fault in the Prefer header is invalid: "+problem+`","field":"Prefer"}`) {
			t.Errorf("%s: %s, want %s", prefer, got, problem)
		}
	}
	const unknown = "is unknown; use method, path, code, delay, drop, truncate, when or times"
	for rule, problem := range map[string]string{
		`{}`: "code, delay, drop or truncate is required", `null`: "code, delay, drop or truncate is required",
		`{"code":503,"left":1}`: "left " + unknown, `{"Code":503}`: "Code " + unknown,
		`{"code":null}`: "code must be an integer from 1 to 2147483647", `{"drop":false}`: "drop must be true",
		`{"drop":true,"times":0}`:        "times must be an integer from 1 to 1000000",
		`{"drop":true,"method":"PATCH"}`: "method must be GET or POST or PUT or DELETE",
		`{"drop":true,"path":"/token"}`:  "path must be /plants or /plants/{id}",
	} {
		got := want(t, rule, b.do("PUT", "/faults", `[{"drop":true},`+rule+"]"), 40037)
		if !strings.Contains(got, `"rule 2: `+problem+`"}`) {
			t.Errorf("%s: %s, want %s", rule, got, problem)
		}
	}
	tooMany := "[" + strings.Repeat(`{"drop":true},`, 32) + `{"drop":true}]`
	for _, body := range []string{"{}", "null", "[", "[1]", `[{"drop":true,"drop":true}]`, tooMany} {
		want(t, body, b.do("PUT", "/faults", body), 40037)
	}
	if got := b.do("GET", "/faults", "").Body.String(); got != "[]" || b.stored(t, 50) {
		t.Errorf("the rules are %s", got)
	}
}

// The first rule that matches and is not used up applies, unless the request has a fault of its own.
func TestRules(t *testing.T) {
	s := start(t, Config{Max: 10})
	b, other := s.sandbox(t, ""), s.sandbox(t, "")
	const sent = `[{"method":"GET","path":"/plants/{id}","code":500,"times":2},` +
		`{"path":"/plants","code":502},{"delay":0,"times":1}]`
	set := func(first, last int) string {
		return fmt.Sprintf(`[{"method":"GET","path":"/plants/{id}","code":500,"times":2,"left":%d},`+
			`{"path":"/plants","code":502},{"delay":0,"times":1,"left":%d}]`, first, last)
	}
	wantRules := func(want string) {
		t.Helper()
		if got := b.do("GET", "/faults", "").Body.String(); got != want {
			t.Errorf("GET /faults = %s, want %s", got, want)
		}
	}
	if got := want(t, "PUT", b.do("PUT", "/faults", sent), 200); got != set(2, 1) {
		t.Errorf("PUT /faults = %s, want %s", got, set(2, 1))
	}
	want(t, "a fault of the request", b.do("GET", "/plants/1", "", "Prefer", "code=404"), 40401)
	want(t, "the first rule", b.do("GET", "/plants/1", ""), 50001)
	want(t, "the second rule", b.do("GET", "/plants", ""), 50201)
	if w := b.do("HEAD", "/plants/1", ""); w.Code != 500 {
		t.Errorf("HEAD is not GET: %d", w.Code)
	}
	wantRules(set(0, 1))
	want(t, "the third rule", b.do("GET", "/plants/1", ""), 200)
	wantRules(set(0, 0))
	want(t, "none", b.do("GET", "/plants/1", ""), 200)
	want(t, "the token", b.do("GET", "/token", ""), 200)
	want(t, "another sandbox", other.do("GET", "/plants", ""), 200)
	w := other.do("GET", "/plants", "", "Prefer", "code=405")
	if want(t, "a method", w, 40501); w.Header().Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow: %s", w.Header().Get("Allow"))
	}
	want(t, "DELETE", b.do("DELETE", "/faults", ""), 204)
	wantRules("[]")
	want(t, "no rules", b.do("PUT", "/faults", "[]"), 200)
	w = b.do("GET", "/faults", "")
	again := other.do("GET", "/faults", "").Header().Get("Sandbox-Process")
	if process := w.Header().Get("Sandbox-Process"); process != again || len(process) < 8 {
		t.Errorf("Sandbox-Process: %q", process)
	}
}

// A delay ends when its time is over or the client leaves. A fifth one in a sandbox is refused, and executes nothing.
func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{Max: 10})
		b, other := s.sandbox(t, ""), s.sandbox(t, "")
		began := time.Now()
		done := make(chan int)
		for n := range 4 {
			go func() { done <- b.do("POST", "/plants", newPlant(100+n, "x"), "Prefer", "delay=30000").Code }()
		}
		synctest.Wait()
		w := b.do("POST", "/plants", newPlant(200, "x"), "Prefer", "delay=1; when=after")
		if want(t, "a fifth", w, 42905); w.Header().Get("Retry-After") != "1" || b.stored(t, 200) || b.stored(t, 100) {
			t.Error("the fifth has no Retry-After, or was executed")
		}
		want(t, "without a delay", b.do("GET", "/plants/1", ""), 200)
		want(t, "another sandbox", other.do("GET", "/plants/1", "", "Prefer", "delay=1"), 200)
		for range 4 {
			if code := <-done; code != http.StatusOK {
				t.Errorf("a delayed create: %d", code)
			}
		}
		if took := time.Since(began); took != 30*time.Second || !b.stored(t, 103) {
			t.Errorf("the delays took %v", took)
		}
	})
}
