package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/internal/testkit"
)

func TestHealth(t *testing.T) {
	testkit.OnEachEngine(t, func(t *testing.T, s *testkit.Server) {
		for path, want := range map[string]string{"/livez": "alive\n", "/readyz": "ready\n"} {
			if status, body := s.Health(t, path); status != 200 || body != want {
				t.Errorf("%s = %d %q", path, status, body)
			}
		}
		if status, _ := s.Health(t, "/plants"); status != 404 {
			t.Errorf("/plants on the ops port = %d", status)
		}
	})
}

func TestOpsOff(t *testing.T) {
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--ops-listen", "off")
	if s.Ops != "" || strings.Contains(s.Stderr.String(), `"ops port"`) {
		t.Errorf("an ops port with --ops-listen off: %s", s.Stderr)
	}
}

func TestLog(t *testing.T) {
	testkit.OnEachEngine(t, func(t *testing.T, s *testkit.Server) {
		s.Create(t, `{"id":1,"name":"fine"}`)
		hostile := `{"id":"\u001b[31m\nlevel=ERROR msg=forged","name":"x"}`
		a := s.Do(t, "POST", "/plants", hostile, testkit.ContentJSON, "X-Request-Id: my-id.1")
		testkit.WantError(t, "hostile", a, 40013)
		if id := a.Header.Get("X-Request-Id"); id != "my-id.1" {
			t.Errorf("X-Request-Id %q, want the client's own", id)
		}
		s.Do(t, "GET", "/nowhere%1b", "")
		records := requestsLogged(t, s, 2, false)
		if len(records) != 2 {
			t.Fatalf("%d requests in the log, want the two that failed:\n%s", len(records), s.Stderr)
		}
		r, unmatched := records[0], records[1]
		if r["error"] == 40402.0 { // Records may be out of order.
			r, unmatched = unmatched, r
		}
		if r["request_id"] != "my-id.1" || r["route"] != "/plants" || r["status"] != 400.0 || r["error"] != 40013.0 ||
			r["ms"] == nil || r["token"] != "first" || r["store"] != "main" || r["path"] != nil {
			t.Errorf("the record of a failure: %v", r)
		}
		if r := unmatched; r["route"] != "unmatched" || r["path"] != "/nowhere\x1b" || r["token"] != "first" ||
			r["store"] != "main" {
			t.Errorf("the record of an unknown path: %v", r)
		}
		for _, name := range []string{`"version":"`, `"engine":"`, `"schema":3,`, `"max_conns":`, `"max_body":65536,`} {
			if !strings.Contains(s.Stderr.String(), name) {
				t.Errorf("the record of the start has no %s", name)
			}
		}
		if strings.ContainsAny(s.Stderr.String(), "\x1b") {
			t.Error("the log contains an escape code")
		}
	})
}

// requestsLogged waits until the log has so many requests, stops the server and returns all requests of its log. Unless
// all are logged, slow requests are ignored, since a busy machine causes them.
func requestsLogged(t *testing.T, s *testkit.Server, want int, all bool) (records []map[string]any) {
	t.Helper()
	find := func() (records []map[string]any) {
		for line := range strings.Lines(s.Stderr.String()) {
			var record map[string]any
			if err := json.Unmarshal([]byte(line), &record); err != nil && strings.HasSuffix(line, "\n") {
				t.Errorf("the line %q is not a record: %v", line, err)
			}
			if record["msg"] != "request" {
				continue
			}
			status, _ := record["status"].(float64)
			took, _ := record["ms"].(float64)
			if all || status >= 400 || took < 1000 {
				records = append(records, record)
			}
		}
		return records
	}
	testkit.WaitFor(t, fmt.Sprintf("%d requests in the log", want), func() bool { return len(find()) >= want })
	s.Stop() // Then the log is complete.
	return find()
}

func TestAccessLog(t *testing.T) {
	for mode, want := range map[string]int{"all": 2, "off": 0, "errors": 1} {
		s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--access-log", mode)
		s.Create(t, `{"id":1,"name":"x"}`)
		s.Create(t, `{}`)
		if got := requestsLogged(t, s, want, mode != "errors"); len(got) != want {
			t.Errorf("--access-log %s: %d records of two requests, want %d: %v", mode, len(got), want, got)
		}
	}
}

// A flood of equal failures gives few lines, which have their number. Another failure is still shown.
func TestLogIsBounded(t *testing.T) {
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	const requests = 5000
	started, c := time.Now(), s.Connect(t)
	for i := range requests {
		if a, err := c.Exchange("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil || a.Status != 404 {
			t.Fatal(a, err)
		}
		if i == requests/2 {
			s.Raw(t, "POST /plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		}
	}
	c.Close() // The stop does not wait for it, so the last numbers are not those of a whole second.
	s.Stop()
	most := 2 * int(time.Since(started)/time.Second+1) // a whole record and a number in each second
	lines, counted, others := 0, 0, 0
	for _, r := range requestsLogged(t, s, 0, true) {
		if r["error"] != 40402.0 {
			others++
			continue
		}
		lines++
		if more, ok := r["more"].(float64); ok {
			counted += int(more)
		} else {
			counted++
		}
	}
	if lines > most || counted != requests || others != 1 {
		t.Errorf("%d lines, at most %d; they count %d of %d requests; %d other lines:\n%s", lines, most, counted,
			requests, others, s.Stderr)
	}
}

// The log shows when the service is not ready and ready again, even if nothing else checks it.
func TestReadinessIsLogged(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.Start(t, db, "--ops-listen", "off")
	testkit.Must(t, func() error { return os.Rename(db, db+".moved") })()
	s.WaitLogged(t, `"level":"WARN","msg":"not ready","reason":"the database is unavailable: `)
	testkit.Must(t, func() error { return os.Rename(db+".moved", db) })()
	s.WaitLogged(t, `"level":"INFO","msg":"ready again"`)
}

// A container that publishes one port has a health check on it, which needs no token and is not logged.
func TestHealthz(t *testing.T) {
	address := testkit.FreeAddress(t)
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--access-log", "all",
		"--listen", address, "--base-url", "http://"+address+"/v")
	s.URL = "http://" + address
	for method, want := range map[string]string{"GET": "200 ok\n", "HEAD": "200 ", "POST": "405 " +
		`{"error":40501,"message":"the path does not support this method; use GET, HEAD"}`} {
		response := s.Raw(t, method+" /v/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		if status, body := testkit.ParseRaw(response); fmt.Sprint(status, " ", body) != want {
			t.Errorf("%s: %s", method, response)
		}
	}
	if records := requestsLogged(t, s, 1, true); len(records) != 1 {
		t.Errorf("logged %v, want only the POST", records)
	}
}

// The service continues when the reader of its log has closed the pipe.
func TestLogReaderCloses(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := testkit.Serve(filepath.Join(t.TempDir(), "plants.db"), "--ops-listen", "off")
	cmd.Stderr = write
	s := testkit.Launch(t, cmd)
	write.Close()
	s.WaitServing()
	read.Close()
	testkit.WantError(t, "an error that cannot be logged", s.Create(t, `{}`), 40011)
	testkit.WantResponse(t, "the next create", s.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}
