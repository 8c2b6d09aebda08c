// Package traces tests the spans that the service sends to an OpenTelemetry collector.
package traces

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"plantstore/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// collector receives spans by OTLP over HTTP.
type collector struct {
	*httptest.Server
	t         *testing.T
	path, key string // that it expects
	mu        sync.Mutex
	received  []*tracepb.ResourceSpans
}

func newCollector(t *testing.T, path, key string) *collector {
	c := &collector{t: t, path: path, key: key}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil || r.Method != "POST" || r.URL.Path != c.path || r.Header.Get("X-Key") != c.key ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("%s %s with %v: %v", r.Method, r.URL, r.Header, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, data.ResourceSpans...)
}

// spans returns all spans so far by their names.
func (c *collector) spans() map[string][]*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]*tracepb.Span{}
	for _, resource := range c.received {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				all[span.Name] = append(all[span.Name], span)
			}
		}
	}
	return all
}

func start(t *testing.T, variables ...string) *testkit.Server {
	t.Helper()
	cmd := testkit.Serve(testkit.Engines[0].Database(t), "--access-log", "all")
	cmd.Env = append(append(os.Environ(), "PLANTSTORE_FIXED_TOKEN="+testkit.FixedToken, "OTEL_BSP_SCHEDULE_DELAY=50"),
		variables...)
	s := testkit.Launch(t, cmd)
	s.WaitServing()
	s.Token = testkit.FixedToken
	return s
}

// attributes returns the attributes of a span or a resource as text.
func attributes(all []*commonpb.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range all {
		text, _ := json.Marshal(a.Value.GetValue())
		values[a.Key] = strings.Trim(string(text[strings.IndexByte(string(text), ':')+1:]), `"}`)
	}
	return values
}

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
)

// A create or an edit has a span for the request, which continues the client's trace, and below it one for the queue
// and one for the commit. The log record of the request has the ids of the trace and of the span.
func TestSpans(t *testing.T) {
	t.Parallel()
	c := newCollector(t, "/prefix/v1/traces", "a b")
	s := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL+"/prefix/", "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20b",
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	s.Do(t, "POST", "/plants", `{"id":71345,"name":"secret name","tag":"secret tag"}`, testkit.ContentJSON,
		"Traceparent: 00-"+traceID+"-"+spanID+"-01")
	s.Do(t, "POST", "/plants", `{"id":71345,"name":"another"}`, testkit.ContentJSON, "Traceparent: 00-invalid")
	s.Do(t, "GET", "/plants/71345", "", "Traceparent: 00-"+traceID+"-"+spanID+"-00") // the client does not sample it
	s.Do(t, "GET", "/plants", "", "Authorization")
	s.Do(t, "DELETE", "/plants/71345", "")
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	spans := c.spans()
	if len(spans["POST /plants"]) != 2 || len(spans["queue"]) != 3 || len(spans["commit"]) != 3 ||
		len(spans["DELETE /plants/{id}"]) != 1 || len(spans["GET /plants"]) != 1 || len(spans["GET /plants/{id}"]) != 0 {
		t.Fatalf("spans: %v", spans)
	}

	first, second := spans["POST /plants"][0], spans["POST /plants"][1]
	if hex.EncodeToString(first.TraceId) != traceID {
		first, second = second, first
	}
	if hex.EncodeToString(first.TraceId) != traceID || hex.EncodeToString(first.ParentSpanId) != spanID {
		t.Errorf("the trace of the client is not continued: %v", first)
	}
	if len(second.ParentSpanId) != 0 || hex.EncodeToString(second.TraceId) == traceID {
		t.Errorf("an invalid traceparent was used: %v", second)
	}
	wantChildren(t, spans, first)
	edit := spans["DELETE /plants/{id}"][0]
	if below(spans["queue"], edit) == nil || below(spans["commit"], edit) == nil {
		t.Errorf("an edit has no spans of its wait and its commit: %v", spans)
	}
	want(t, first, map[string]string{
		"http.request.method": "POST", "http.route": "/plants", "http.response.status_code": "200",
	})
	want(t, second, map[string]string{
		"http.request.method": "POST", "http.route": "/plants", "http.response.status_code": "400", "error.type": "40009",
	})
	want(t, spans["GET /plants"][0], map[string]string{
		"http.request.method": "GET", "http.route": "/plants", "http.response.status_code": "401", "error.type": "40101",
	})
	if r := attributes(c.received[0].Resource.Attributes); r["service.name"] != "plantstore" ||
		r["service.version"] == "" || r["deployment.environment.name"] != "test" {
		t.Errorf("the resource is %v", r)
	}
	if !strings.Contains(s.Stderr.String(), `"trace_id":"`+traceID+`","span_id":"`+hex.EncodeToString(first.SpanId)+`"`) {
		t.Errorf("no log record has the ids of %v:\n%s", first, s.Stderr)
	}
	all, err := json.Marshal(c.received)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{testkit.FixedToken, "secret", "71345"} {
		if strings.Contains(string(all), secret) {
			t.Errorf("%q is in the spans: %s", secret, all)
		}
	}
}

// wantChildren checks that a create was in the queue and then in the commit, and never outside of its request.
func wantChildren(t *testing.T, spans map[string][]*tracepb.Span, first *tracepb.Span) {
	t.Helper()
	for _, child := range []*tracepb.Span{below(spans["queue"], first), below(spans["commit"], first)} {
		if child == nil || string(child.TraceId) != string(first.TraceId) ||
			child.StartTimeUnixNano < first.StartTimeUnixNano || child.EndTimeUnixNano > first.EndTimeUnixNano ||
			child.EndTimeUnixNano < child.StartTimeUnixNano {
			t.Errorf("below %v: %v", first, child)
		}
	}
	if queue, commit := below(spans["queue"], first), below(spans["commit"], first); queue.EndTimeUnixNano !=
		commit.StartTimeUnixNano || attributes(commit.Attributes)["plantstore.commit.plants"] != "1" {
		t.Errorf("queue and commit: %v, %v", queue, commit)
	}
}

func below(spans []*tracepb.Span, parent *tracepb.Span) *tracepb.Span {
	for _, s := range spans {
		if string(s.ParentSpanId) == string(parent.SpanId) {
			return s
		}
	}
	return nil
}

func want(t *testing.T, span *tracepb.Span, wanted map[string]string) {
	t.Helper()
	got := attributes(span.Attributes)
	if len(got) != len(wanted) || span.Kind != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("%s (%v) has the attributes %v, want %v", span.Name, span.Kind, got, wanted)
	}
	for key, value := range wanted {
		if got[key] != value {
			t.Errorf("%s of %s is %q, want %q", key, span.Name, got[key], value)
		}
	}
}

// The documented command sends the spans of a create, with no other variable of OpenTelemetry.
func TestDocumentedCommand(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^\$ (OTEL_\S+) plantstore serve$`).FindStringSubmatch(string(page))
	if command == nil {
		t.Fatal("docs/monitoring.md has no command that sends traces")
	}
	c := newCollector(t, "/v1/traces", "")
	cmd := testkit.Serve(filepath.Join(t.TempDir(), "plants.db"))
	cmd.Env = []string{testkit.ReplaceOnce(t, command[1], "http://127.0.0.1:4318", c.URL)}
	s := testkit.Launch(t, cmd)
	s.WaitServing()
	s.Create(t, `{"id":1,"name":"Fern"}`)
	if code := s.Stop(); code != 0 || strings.Contains(s.Stderr.String(), "spans") {
		t.Errorf("exit code %d", code)
	}
	spans := c.spans()
	if len(spans["POST /plants"]) != 1 || len(spans["queue"]) != 1 || len(spans["commit"]) != 1 {
		t.Fatalf("spans: %v", spans)
	}
	want(t, spans["POST /plants"][0], map[string]string{
		"http.request.method": "POST", "http.route": "/plants", "http.response.status_code": "200",
	})
}

// A collector that hangs, fails or does not exist delays neither a request nor, by more than seconds, a stop. The log
// has the reason once.
func TestCollectorFails(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(end) })
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of memory", http.StatusInternalServerError)
	}))
	t.Cleanup(failing.Close)
	for name, test := range map[string]struct{ url, timeout, reason string }{
		"hangs":  {hanging.URL, "100", "Client.Timeout exceeded while awaiting headers"},
		"fails":  {failing.URL, "10000", "500 Internal Server Error (body: out of memory)"},
		"absent": {"http://127.0.0.1:1", "10000", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+test.url,
				"OTEL_EXPORTER_OTLP_TIMEOUT="+test.timeout, "OTEL_BSP_EXPORT_TIMEOUT=10000", "OTEL_BSP_MAX_QUEUE_SIZE=16",
				"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=8")
			create := func() {
				if a := s.Create(t, `{"id":1,"name":"Fern"}`); a.Status != 200 {
					t.Fatalf("%d %s", a.Status, a.Body)
				}
			}
			for range 30 {
				create()
			}
			s.WaitLogged(t, test.reason)
			create()
			if code := s.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if log := s.Stderr.String(); strings.Count(log, `"spans were not sent`) != 1 {
				t.Errorf("the failure must be logged once:\n%.3000s", log)
			}
		})
	}
}

// A wrong variable is an error that names it, and without an address there are no traces.
func TestVariables(t *testing.T) {
	t.Parallel()
	for variable, message := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318": "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc":           "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or",
		"OTEL_EXPORTER_OTLP_HEADERS=key=100%":        "OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://u:%@c":   "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as",
		"OTEL_EXPORTER_OTLP_HEADERS=key":             "OTEL_EXPORTER_OTLP_HEADERS must be name=value pairs",
		"OTEL_BSP_MAX_QUEUE_SIZE=-1":                 "OTEL_BSP_MAX_QUEUE_SIZE must be a number from 1 to",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=9999999":     "OTEL_BSP_MAX_EXPORT_BATCH_SIZE must be a number from",
	} {
		cmd := testkit.Serve(filepath.Join(t.TempDir(), "plants.db"))
		cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", variable)
		s := testkit.Launch(t, cmd)
		if code := s.WaitExit(); code != 2 || !strings.Contains(s.Stderr.String(), message) {
			t.Errorf("with %s: exit code %d, %s", variable, code, s.Stderr)
		}
	}
	for _, off := range []string{"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT="} {
		s := start(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", off)
		s.Create(t, `{"id":1,"name":"Fern"}`)
		s.Stop()
		if log := s.Stderr.String(); strings.Contains(log, "trace_id") || strings.Contains(log, "spans") {
			t.Errorf("with %s:\n%s", off, log)
		}
	}
}
