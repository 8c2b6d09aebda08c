package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if s.Ops != "" || strings.Contains(s.Stderr.String(), `"health"`) {
		t.Errorf("a health listener with --ops-listen off: %s", s.Stderr)
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
		a = s.Do(t, "GET", "/nowhere%1b", "", "X-Request-Id: <script>")
		if id := a.Header.Get("X-Request-Id"); id == "" || strings.Contains(id, "<") {
			t.Errorf("X-Request-Id %q for an invalid one", id)
		}
		records := requestsLogged(t, s, 2, false)
		if len(records) != 2 {
			t.Fatalf("%d requests in the log, want the two that failed:\n%s", len(records), s.Stderr)
		}
		r := records[0]
		if r["error"] == 40402.0 { // Records may be out of order.
			r = records[1]
		}
		if r["id"] != "my-id.1" || r["route"] != "POST /plants" || r["status"] != 400.0 || r["error"] != 40013.0 ||
			r["ms"] == nil {
			t.Errorf("the record of a failure: %v", r)
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
