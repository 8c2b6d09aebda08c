package sandbox

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"plantstore/test/testkit"
)

// entry is a part of an entry of a journal.
type entry struct {
	Number       int
	Method, Path string
	Status       int
	Fault        string
}

// journal returns the journal of a sandbox, newest first.
func journal(t *testing.T, b box) (all []entry) {
	t.Helper()
	a := send(t, b.Target, "GET", "/requests?limit=200", "")
	if err := json.Unmarshal([]byte(a.Body), &all); err != nil || a.Status != 200 {
		t.Fatalf("GET /requests: %d %s", a.Status, a.Body)
	}
	return all
}

// The token of an operator has no faults and no journal.
func TestOrdinaryToken(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, func(t *testing.T, s *testkit.Server) {
		for _, operation := range []string{"DELETE /sandbox", "POST /sandbox/reset", "GET /faults", "PUT /faults",
			"DELETE /faults", "GET /requests", "DELETE /requests"} {
			method, path, _ := strings.Cut(operation, " ")
			testkit.WantError(t, operation, send(t, s.Target(), method, path, "[]"), 40302)
		}
		for i, prefer := range []string{"code=503", "drop", "truncate", "delay=30000", "code=503; when=after", "code=x"} {
			a := send(t, s.Target(), "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, i), "Prefer: "+prefer)
			if a.Status != 200 || a.Body != `{"name":"x"}` || a.Header.Get("Preference-Applied") != "" {
				t.Errorf("Prefer: %s: %d %s, %v", prefer, a.Status, a.Body, a.Header)
			}
		}
	}, "--sandbox")
}

// Without --sandbox, its paths do not exist, and the description has nothing of it.
func TestWithoutSandbox(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	for _, operation := range []string{"POST /sandboxes", "DELETE /sandbox", "POST /sandbox/reset", "GET /faults",
		"PUT /faults", "DELETE /faults", "GET /requests", "DELETE /requests"} {
		method, path, _ := strings.Cut(operation, " ")
		testkit.WantError(t, operation, send(t, s.Target(), method, path, "[]"), 40402)
	}
	a := send(t, s.Target(), "POST", "/plants", `{"id":1,"name":"x"}`, "Prefer: code=503")
	testkit.WantResponse(t, "a create with a fault", a, 200, `{"name":"x"}`)
	description, err := s.Send("GET", "/openapi.json", "")
	if err != nil {
		t.Fatal(err)
	}
	text := description.Body
	found := regexp.MustCompile(`(?i)sandbox|/faults|/requests|4003[4-8]|40302|42904|50201|50401|50307|truncate`).
		FindAllString(text, -1)
	if len(text) < 1000 || len(found) > 0 {
		t.Errorf("/openapi.json has %d bytes and %q", len(text), found)
	}
}

// hold sends creates that are delayed for 30 seconds, and returns their responses once they have ended.
func hold(t *testing.T, b box, n int) chan testkit.Response {
	responses := make(chan testkit.Response, n)
	for i := range n {
		go func() {
			c, a := &conn{url: b.URL}, testkit.Response{Status: 503}
			for a.Status == 503 { // There is no free connection.
				a, _ = c.send(b.Token, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, i), "Prefer: delay=30000",
					"Connection: close")
			}
			responses <- a
		}()
	}
	return responses
}

// A sandbox has four delayed requests at most. They end early when the service stops, and store their plants.
func TestDelays(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, func(t *testing.T, s *testkit.Server) {
		b := newBox(t, s, `{"seed":"empty"}`)
		responses := hold(t, b, 5)
		testkit.WantError(t, "the fifth delayed request", <-responses, 42905)
		s.Signal(syscall.SIGTERM)
		for range 4 {
			testkit.WantResponse(t, "a delayed request", <-responses, 200, `{"name":"x"}`)
		}
		if code := s.WaitExit(); code != 0 {
			t.Errorf("exit %d, want 0", code)
		}
	}, "--sandbox")
}

// Delayed requests hold no connection that another client needs.
func TestDelayedConnections(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--sandbox", "--max-conns", "5")
	one, two := newBox(t, s, ""), newBox(t, s, "")
	first, second := hold(t, one, 4), hold(t, two, 4)
	testkit.WaitFor(t, "a client on a new connection", func() bool {
		a, err := (&conn{url: s.URL}).send(s.Token, "POST", "/plants", `{"id":1,"name":"x"}`)
		return err == nil && a.Status == 200
	})
	var a testkit.Response
	select {
	case a = <-first:
	case a = <-second:
	}
	if a.Status != 0 {
		t.Errorf("a delayed request gets %d %s, want its connection closed for another", a.Status, a.Body)
	}
}

// Injected failures are no failures of the service.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"), "--sandbox")
	b := newBox(t, s, "")
	send(t, b.Target, "POST", "/plants", `{"id":100,"name":"x"}`)
	for _, prefer := range []string{"code=503", "code=500", "code=503; when=after", "code=429", "delay=1"} {
		send(t, b.Target, "POST", "/plants", `{"id":100,"name":"x"}`, "Prefer: "+prefer)
	}
	var got []string
	testkit.WaitFor(t, "all requests to be counted", func() bool {
		_, text := s.Health(t, "/metrics")
		got = regexp.MustCompile(`(?m)^http_server_request_duration_seconds_count\{.*"POST".*$`).FindAllString(text, -1)
		got = slices.DeleteFunc(got, func(series string) bool { return strings.HasSuffix(series, " 0") })
		return len(got) > 5
	})
	series := func(errorType, status, route string, n int) string {
		return fmt.Sprintf(`http_server_request_duration_seconds_count{error_type=%q,http_request_method="POST",`+
			`http_response_status_code=%q,http_route=%q} %d`, errorType, status, route, n)
	}
	want := []string{series("", "200", "/plants", 1), series("", "201", "/sandboxes", 1),
		series("injected", "200", "injected", 1), series("injected", "429", "injected", 1),
		series("injected", "500", "injected", 1), series("injected", "503", "injected", 2)}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("metrics of creates:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
