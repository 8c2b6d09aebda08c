package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plantstore/internal/server"
	"plantstore/internal/telemetry"
)

// The spans of a create that is cut off at the end of the drain are sent before Run returns.
func TestLastSpans(t *testing.T) {
	var received synced
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(&received, r.Body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracer, err := telemetry.NewTracer(t.Context(), "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	st := &slowStore{Store: openStore(t), entered: make(chan context.Context, 1), release: make(chan struct{})}
	s := start(t, server.Config{Drain: 10 * time.Millisecond, Tracer: tracer}, st)
	go s.send(context.Background(), "POST", "/plants", `{"id":1,"name":"x"}`)
	<-st.entered
	time.AfterFunc(1500*time.Millisecond, func() { close(st.release) }) // longer than the tracer waits for requests
	s.end(t)
	for _, name := range []string{"POST /plants", "queue", "commit"} {
		if !strings.Contains(received.String(), name) {
			t.Errorf("the span %s was not sent", name)
		}
	}
}
