package telemetry_test

import (
	"fmt"
	"log"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/telemetry"
)

// Every failure of the catalogue that refuses a token or limits a rate is counted with its reason, and no other.
func TestReasons(t *testing.T) {
	counted := regexp.MustCompile(`(?m)^plantstore_(tokens_refused|rate_limited)_total\{reason="[a-z_]+"\} 1$`)
	for _, f := range httpapi.Catalogue() {
		m := telemetry.NewMetrics("", func(telemetry.Set) {})
		m.Request("/plants", "GET", f.Status(), f.Number, time.Millisecond)
		w := httptest.NewRecorder()
		m.Handler(log.Default()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		want := ""
		switch f.Status() {
		case 401, 403:
			want = "[tokens_refused]"
		case 429:
			want = "[rate_limited]"
		}
		got := ""
		for _, match := range counted.FindAllStringSubmatch(w.Body.String(), -1) {
			got += fmt.Sprint(match[1:])
		}
		if got != want {
			t.Errorf("the failure %d is counted in %q, want %q", f.Number, got, want)
		}
	}
}

// A full disk is counted from 0, so that also the first burst of failures is an increase.
func TestFullDiskFromZero(t *testing.T) {
	for _, f := range httpapi.Catalogue() {
		if f.Number == 50304 && f.Status() != 503 {
			t.Errorf("the status of 50304 is %d", f.Status())
		}
	}
	w := httptest.NewRecorder()
	m := telemetry.NewMetrics("", func(telemetry.Set) {})
	m.Handler(log.Default()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	want := `http_server_request_duration_seconds_count{error_type="50304",http_request_method="POST",` +
		`http_response_status_code="503",http_route="/plants"} 0`
	if !strings.Contains(w.Body.String(), want) {
		t.Errorf("no %s", want)
	}
}

// BenchmarkRequest is what metrics add to every request.
func BenchmarkRequest(b *testing.B) {
	m := telemetry.NewMetrics("", func(telemetry.Set) {})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Request("/plants", "POST", 200, 0, time.Duration(i%1000)*10*time.Microsecond)
	}
}
