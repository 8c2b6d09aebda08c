package httpapi

import (
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

// large is a store in which every plant has a name of so many bytes.
type large struct {
	Reader
	bytes int
}

func (l large) Get(_ context.Context, _ string, id int64) (plant.New, error) {
	return plant.New{ID: id, Plant: plant.Plant{Name: strings.Repeat("x", l.bytes)}}, nil
}

// A plant that is read counts among what all requests together may hold in memory, until it is answered.
func TestReadsAreHeld(t *testing.T) {
	for bytes, want := range map[int]int{40 << 10: 200, 60 << 10: 503} {
		a := New(Options{
			MaxBody: 100 << 10, MaxHeld: 100 << 10, Log: slog.New(slog.DiscardHandler),
			Auth: anybody{}, Reader: large{bytes: bytes}, Stopping: func() bool { return false },
		})
		for range 3 {
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest("GET", "/plants/1", nil))
			if w.Code != want {
				t.Errorf("a plant of %d bytes: %d %.100s, want %d", bytes, w.Code, w.Body, want)
			}
		}
	}
}

// What nobody has confirmed is never answered 200.
func TestNoOutcome(t *testing.T) {
	a := New(Options{
		MaxBody: 1000, Log: slog.New(slog.DiscardHandler),
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
