package metrics

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// scrape is what /metrics returned in the text format.
type scrape struct {
	text     string
	families map[string]string // the type of each metric
	values   map[string]float64
}

func newScrape(t testing.TB, s *testkit.Server) scrape {
	t.Helper()
	status, text := s.Health(t, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d %s", status, text)
	}
	all := scrape{text, map[string]string{}, map[string]float64{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if family, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(family, " ")
			all.families[name] = kind
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all.values[line[:at]] = value
	}
	return all
}

// ours are the series of the service itself, without those of the Go runtime and the process, and of 429: when the
// first wrong token is refused with it depends on the speed of the machine.
func (all scrape) ours() (series []string) {
	for name := range all.values {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && !strings.Contains(name, `"429"`) {
			series = append(series, name)
		}
	}
	slices.Sort(series)
	return series
}

// waitValue waits until a series has a value: a request is counted after its response was written.
func waitValue(t testing.TB, s *testkit.Server, series string, want float64) {
	t.Helper()
	var got scrape
	testkit.WaitFor(t, fmt.Sprintf("%s = %v", series, want), func() bool {
		got = newScrape(t, s)
		return got.values[series] == want
	})
}

// requests is the series with the number of requests.
func requests(method, route string, status, number int) string {
	errorType := ""
	if number != 0 {
		errorType = strconv.Itoa(number)
	}
	return fmt.Sprintf(`http_server_request_duration_seconds_count{error_type=%q,http_request_method=%q,`+
		`http_response_status_code="%d",http_route=%q}`, errorType, method, status, route)
}

// What clients do is counted once, in the series that the documentation names.
func TestCounts(t *testing.T) {
	t.Parallel()
	s := testkit.StartFixed(t, testkit.Engines[0].Database(t))
	s.Create(t, `{"id":1,"name":"Fern"}`)
	s.Create(t, `{"id":1,"name":"Fern"}`)
	s.Create(t, `{"id":1,"name":"Ivy"}`)
	s.Create(t, `{"id":`)
	s.Do(t, "GET", "/plants/1", "")
	s.Do(t, "GET", "/plants/2", "")
	s.Do(t, "PUT", "/plants/1", `{"name":"Ivy"}`, testkit.ContentJSON)
	s.Do(t, "PUT", "/plants/2", `{"name":"Ivy"}`, testkit.ContentJSON)
	s.Do(t, "DELETE", "/plants/2", "")
	s.Do(t, "GET", "/plants", "", "Authorization")
	s.Do(t, "GET", "/plants", "", "Authorization: Bearer wrong")
	for _, r := range []string{"HEAD /plants/1", "PATCH /plants", "BREW /plants", "GET /pots", "GET /", "GET /docs"} {
		method, path, _ := strings.Cut(r, " ")
		if _, err := s.Send(method, path, ""); err != nil {
			t.Fatal(err)
		}
	}
	s.Raw(t, "OPTIONS /plants HTTP/1.1\r\nHost: x\r\nOrigin: https://other.example\r\nConnection: close\r\n"+
		"Access-Control-Request-Method: POST\r\n\r\n")
	s.Raw(t, "nonsense\r\n\r\n")
	s.Raw(t, "GET /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
	for series, want := range map[string]float64{
		requests("POST", "/plants", 200, 0):                      2,
		requests("POST", "/plants", 400, 40009):                  1,
		requests("POST", "/plants", 400, 40002):                  1,
		requests("GET", "/plants/{id}", 200, 0):                  1,
		requests("GET", "/plants/{id}", 404, 40401):              1,
		requests("HEAD", "/plants/{id}", 200, 0):                 1,
		requests("GET", "/plants", 401, 40101):                   1,
		requests("GET", "/plants", 401, 40103):                   1,
		requests("PATCH", "/plants", 405, 40501):                 1,
		requests("_OTHER", "/plants", 405, 40501):                1,
		requests("GET", "unmatched", 404, 40402):                 1,
		requests("GET", "/{$}", 200, 0):                          1,
		requests("GET", "/docs", 200, 0):                         1,
		requests("OPTIONS", "preflight", 204, 0):                 1,
		`plantstore_creates_total{outcome="created"}`:            1,
		`plantstore_creates_total{outcome="same"}`:               1,
		`plantstore_creates_total{outcome="taken"}`:              1,
		requests("PUT", "/plants/{id}", 200, 0):                  1,
		requests("DELETE", "/plants/{id}", 404, 40401):           1,
		`plantstore_edits_total{outcome="replaced"}`:             1,
		`plantstore_edits_total{outcome="absent"}`:               2,
		`plantstore_edits_total{outcome="removed"}`:              0,
		`plantstore_edits_total{outcome="changed"}`:              0,
		`plantstore_commit_batch_plants_sum{operation="create"}`: 3,
		`plantstore_commit_batch_plants_sum{operation="edit"}`:   3,
		`plantstore_queue_plants{operation="edit"}`:              0,
		`plantstore_protocol_errors_total{error_type="40024"}`:   2,

		`plantstore_commit_duration_seconds_count{operation="create",result="ok"}`: 3,
		`plantstore_commit_duration_seconds_count{operation="edit",result="ok"}`:   3,
	} {
		waitValue(t, s, series, want)
	}
}

// Whatever clients send, there are no more series than before, and none has anything of a request in it.
func TestHostileRequestsAddNoSeries(t *testing.T) {
	t.Parallel()
	s := testkit.StartFixed(t, testkit.Engines[0].Database(t))
	secrets := []string{s.Token}
	attack := func() {
		t.Helper()
		for range 60 {
			word := fmt.Sprintf("SECRET%X", rand.Uint64())
			secrets = append(secrets, word)
			for _, request := range []string{
				word + " /plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
				word + " /" + word + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
				"GET /" + word + "/../plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
				"GET /plants/" + word + " HTTP/1.1\r\nHost: " + word + "\r\nConnection: close\r\n\r\n",
				"GET /plants?q=" + word + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: " + word +
					"\r\nAuthorization: Bearer " + word + "\r\n\r\n",
				"GET /" + word + " HTTP/9.9\r\nHost: x\r\n\r\n",
				word + "\r\n\r\n",
			} {
				s.Raw(t, request)
			}
			if _, err := s.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":%q}`, rand.Int64(), word)); err != nil {
				t.Fatal(err)
			}
		}
		waitIdle(t, s)
	}
	attack()
	before := newScrape(t, s)
	attack()
	after := newScrape(t, s)
	if got, want := after.ours(), before.ours(); !slices.Equal(got, want) {
		t.Errorf("%d series after more hostile requests, %d before; new: %v", len(got), len(want),
			slices.DeleteFunc(got, func(name string) bool { return slices.Contains(want, name) }))
	}
	if n := len(after.ours()); n > 1000 {
		t.Errorf("%d series", n)
	}
	for _, secret := range secrets {
		if strings.Contains(strings.ToUpper(after.text), strings.ToUpper(secret)) {
			t.Fatalf("/metrics contains %q", secret)
		}
	}
}

// waitIdle waits until every request is counted: its connection is closed afterwards, or idle.
func waitIdle(t testing.TB, s *testkit.Server) {
	t.Helper()
	testkit.WaitFor(t, "the connections to be idle", func() bool {
		got := newScrape(t, s).values
		return got[`plantstore_connections{state="handling"}`]+got[`plantstore_connections{state="writing"}`] == 0
	})
}

// Connections are counted by state, and those that are closed or refused in an overload by reason.
func TestConnections(t *testing.T) {
	t.Parallel()
	s := testkit.StartFixed(t, testkit.Engines[0].Database(t), "--max-conns", "16")
	for range 3 {
		s.Connect(t)
	}
	c := s.Connect(t)
	c.Create(1, "Fern")
	waitValue(t, s, `plantstore_connections{state="idle"}`, 4)
	waitValue(t, s, `plantstore_connections_limit`, 16)
	testkit.WaitFor(t, "evictions and refusals", func() bool {
		for range 30 {
			s.Connect(t)
		}
		got := newScrape(t, s).values
		return got[`plantstore_connections_evicted_total{reason="no_token"}`] > 0 &&
			got[`plantstore_connections_refused_total{reason="address_share"}`] > 0
	})
}

// Checkpoints are timed, and the sizes of the files are those of the file system.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	s := testkit.StartFixed(t, testkit.Engines[0].Database(t))
	name := strings.Repeat("x", 60_000)
	for id := range 300 { // a checkpoint is made after every 2 MB
		if a, err := s.Send("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":%q}`, id, name)); err != nil || a.Status != 200 {
			t.Fatalf("create: %d, %v", a.Status, err)
		}
	}
	testkit.WaitFor(t, "a checkpoint", func() bool {
		got := newScrape(t, s).values
		return got[`plantstore_checkpoint_duration_seconds_count{result="ok"}`] > 0 &&
			got["plantstore_database_bytes"] > 10e6 && got["plantstore_wal_bytes"] > 1e6
	})
}

// Profiles can be read, and the command line, which may have a password, cannot. Nothing of the ops port is on the
// public port.
func TestProfiles(t *testing.T) {
	t.Parallel()
	s := testkit.StartFixed(t, testkit.Engines[0].Database(t))
	for path, want := range map[string]string{
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/heap":              "\x1f\x8b",
		"/debug/pprof/profile?seconds=1": "\x1f\x8b",
		"/debug/pprof/trace?seconds=0.1": "go 1.",
		"/debug/pprof/goroutine?debug=1": "goroutine profile:",
	} {
		if status, body := s.Health(t, path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.40q, want %q in it", path, status, body, want)
		}
	}
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/pprof", "/debug/pprof/none", "/debug/vars"} {
		if status, body := s.Health(t, path); status != 404 || !strings.HasPrefix(body, `{"error":40402,`) {
			t.Errorf("%s: %d %s, want the error 40402", path, status, body)
		}
	}
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/livez", "/readyz"} {
		testkit.WantError(t, path, s.Do(t, "GET", path, ""), 40402)
	}
}
