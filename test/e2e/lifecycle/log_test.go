package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

func TestLog(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	s.Create(t, `{"id":1,"name":"fine"}`)
	hostile := `{"id":"\u001b[31m\nlevel=ERROR msg=forged","name":"x"}`
	a := s.Do(t, "POST", "/plants", hostile, testkit.ContentJSON, "X-Request-Id: my-id.1")
	testkit.WantError(t, "hostile", a, 40013)
	if id := a.Header.Get("X-Request-Id"); id != "my-id.1" {
		t.Errorf("X-Request-Id %q, want the client's own", id)
	}
	s.Do(t, "GET", "/nowhere%1b", "")
	for path, want := range map[string]string{"/livez": "alive\n", "/readyz": "ready\n"} {
		testkit.WaitFor(t, path, func() bool {
			status, body := s.Health(t, path)
			return status == 200 && body == want
		})
	}
	records := requestsLogged(t, s, 2)
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
	if r := unmatched; r["route"] != "unmatched" || r["path"] != "/nowhere\x1b" || r["token"] != nil {
		t.Errorf("the record of an unknown path: %v", r)
	}
	for _, name := range []string{`"version":"`, `"engine":"`, `"schema":6,`, `"max_conns":`, `"max-body":"65536",`} {
		if !strings.Contains(s.Stderr.String(), name) {
			t.Errorf("the record of the start has no %s", name)
		}
	}
	if strings.ContainsAny(s.Stderr.String(), "\x1b") {
		t.Error("the log contains an escape code")
	}
}

// requestsLogged waits until the log has so many requests, stops the server and returns all requests of its log without
// slow ones, which a busy machine causes.
func requestsLogged(t *testing.T, s *testkit.Server, want int) (records []map[string]any) {
	t.Helper()
	find := func() (records []map[string]any) {
		for line := range strings.Lines(s.Stderr.String()) {
			var record map[string]any
			if err := json.Unmarshal([]byte(line), &record); err != nil && strings.HasSuffix(line, "\n") {
				t.Errorf("the line %q is not a record: %v", line, err)
			}
			if status, _ := record["status"].(float64); record["msg"] == "request" && status >= 400 {
				records = append(records, record)
			}
		}
		return records
	}
	testkit.WaitFor(t, fmt.Sprintf("%d requests in the log", want), func() bool { return len(find()) >= want })
	s.Stop() // Then the log is complete.
	return find()
}

// The log shows when the service is not ready and ready again, even if nothing else checks it.
func TestReadinessIsLogged(t *testing.T) {
	testkit.Long(t)
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.Start(t, db, "--ops-listen", "off")
	testkit.Must(t, func() error { return os.Rename(db, db+".moved") })()
	s.WaitLogged(t, `"level":"WARN","msg":"not ready","reason":"the database is unavailable: `)
	testkit.Must(t, func() error { return os.Rename(db+".moved", db) })()
	s.WaitLogged(t, `"level":"INFO","msg":"ready again"`)
}

// The service continues when the reader of its log has closed the pipe.
func TestLogReaderCloses(t *testing.T) {
	t.Parallel()
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
