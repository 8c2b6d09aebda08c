package server

import (
	"context"
	"net/http"
	"time"

	"plantstore/internal/commit"
	"plantstore/internal/telemetry"
)

// closeTracer is how long a stop waits at most for a collector that does not respond.
const closeTracer = 2 * time.Second

// startTracer adds the ids of traces to the log. The last spans are sent after everything else has ended.
func (s *service) startTracer(ctx context.Context) {
	tracer := s.cfg.Tracer
	if tracer == nil {
		return
	}
	s.cfg.Log = tracer.Logger(s.cfg.Log)
	s.cleanup = append(s.cleanup, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTracer)
		defer cancel()
		tracer.Close(ctx) // the error was logged
	})
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
