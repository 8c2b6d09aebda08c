package httpapi

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"plantstore/internal/plant"
)

// silence is a service that tells no outcome.
type silence struct{}

func (silence) Create(context.Context, plant.Record) (plant.Outcome, error) { return 0, nil }

// What nobody has confirmed is never answered 200.
func TestNoOutcome(t *testing.T) {
	a := New(Options{
		MaxBody: 1000, Log: slog.New(slog.NewJSONHandler(&bytes.Buffer{}, nil)),
		Auth: anybody{}, Creator: silence{}, Stopping: func() bool { return false },
	})
	r := httptest.NewRequest("POST", "/plants", strings.NewReader(`{"id":1,"name":"x"}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if w.Code != 503 || !strings.Contains(w.Body.String(), `"error":50302`) {
		t.Errorf("a create without an outcome: %d %s, want 50302", w.Code, w.Body)
	}
}
