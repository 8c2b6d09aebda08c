package server_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/internal/server"
	"plantstore/internal/storage"
)

// hanging is a store whose check returns when the test ends.
type hanging struct {
	storage.Storage
	end chan struct{}
}

func (h hanging) Check(context.Context) error {
	<-h.end
	return nil
}

// While the database hangs, /metrics has everything that is known without it.
func TestMetricsWhileTheDatabaseHangs(t *testing.T) {
	database := hanging{openStorage(t), make(chan struct{})}
	s := start(t, server.Config{Version: "v1.2.3"}, database)
	defer close(database.end)
	if status, err := s.send(t.Context(), "POST", "/plants", `{"id":1,"name":"Fern"}`); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	want := []string{
		"plantstore_ready 0", `plantstore_creates_total{outcome="created"} 1`,
		`plantstore_queue_limit{operation="create"} 4096`, `plantstore_queue_limit{operation="edit"} 4096`,
		`http_server_request_duration_seconds_count{error_type="50304",http_request_method="POST",` +
			`http_response_status_code="503",http_route="/plants"} 0`, // so that the first full disk is an increase
		`plantstore_connections_refused_total{reason="limit"} 0`, "plantstore_writes_stopped 0", `version="v1.2.3"} 1`,
	}
	for deadline := time.Now().Add(waitLimit); ; {
		response, err := http.Get(s.health + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := io.ReadAll(response.Body)
		response.Body.Close()
		isMissing := func(line string) bool { return !strings.Contains(string(metrics), line+"\n") }
		if err == nil && !slices.ContainsFunc(want, isMissing) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("/metrics lacks one of %q: %v\n%s", want, err, metrics)
		}
	}
}
