package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Health answers /livez and /readyz.
type Health struct {
	check    func(context.Context) error
	stopping atomic.Bool
}

// NewHealth is ready while check returns nil.
func NewHealth(check func(context.Context) error) *Health { return &Health{check: check} }

// Stopping makes the service not ready, for good.
func (h *Health) Stopping() { h.stopping.Store(true) }

// Handler serves the two paths.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		var reasons []string
		if h.stopping.Load() {
			reasons = append(reasons, "the service is stopping")
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := h.check(ctx); err != nil {
			reasons = append(reasons, err.Error())
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if len(reasons) == 0 {
			fmt.Fprintln(w, "ready")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, reason := range reasons {
			fmt.Fprintln(w, "not ready:", reason)
		}
	})
	return mux
}
