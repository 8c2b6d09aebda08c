package server

import (
	"context"
	"net/http"

	"plantstore/internal/commit"
	"plantstore/internal/telemetry"
)

// closeTracer sends the last spans. They include the spans of writes that the drain has cut off: their commits have
// ended.
func (s *service) closeTracer() {
	if s.cfg.Tracer == nil {
		return
	}
	if err := s.cfg.Tracer.Close(); err != nil {
		s.cfg.Log.Warn("the last spans were not sent: the collector did not accept them in time", "reason", err.Error())
	}
}

// traced returns h with a span for each request, or h if there are no traces.
func (s *service) traced(h http.Handler) http.Handler {
	if s.cfg.Tracer == nil {
		return h
	}
	return s.cfg.Tracer.Handler(h)
}

// observeWaits returns nil without traces.
func observeWaits(t *telemetry.Tracer) func(context.Context, commit.Wait) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, w commit.Wait) {
		t.Write(ctx, w.Joined, w.Started, w.Ended, w.Plants, w.Err)
	}
}
