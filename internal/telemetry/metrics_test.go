package telemetry_test

import (
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"plantstore/internal/httpapi"
	"plantstore/internal/telemetry"
)

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
