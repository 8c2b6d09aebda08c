package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	readyTimeout = time.Second     // a database that takes longer is not ready
	checkTimeout = 5 * time.Second // SQLite names the reason within it; PostgreSQL has timeouts of its own
	watchPeriod  = 5 * time.Second // between the checks of Watch
)

var errHangs = fmt.Errorf("the database has not responded for %d s", readyTimeout/time.Second)

// Health serves /readyz.
type Health struct {
	check    func(context.Context) error
	log      *slog.Logger
	stopping atomic.Bool
	notReady atomic.Bool // the last record in the log is "not ready"

	// Requests that arrive while a check is in progress share it, so that a database that hangs occupies one connection
	// and not one for each request.
	checks  singleflight.Group
	lastErr atomic.Pointer[error] // of the previous check; nil before the first one
}

// NewHealth returns a Health that is ready while check returns nil within a second. Calls of check never
// overlap. Every change of the result is logged.
func NewHealth(check func(context.Context) error, log *slog.Logger) *Health {
	return &Health{check: check, log: log}
}

// Watch calls Ready every watchPeriod until ctx ends, so that changes are logged even if nothing else calls it.
func (h *Health) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		h.Ready()
		select {
		case <-time.After(watchPeriod):
		case <-ctx.Done():
		}
	}
}

// Stopping makes the service permanently not ready.
func (h *Health) Stopping() { h.stopping.Store(true) }

// ServeHTTP serves /readyz.
func (h *Health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	err := h.Ready()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err == nil {
		fmt.Fprintln(w, "ready")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, "not ready:", err)
}

// Ready returns the result of the check in progress, or of a new one. It waits for readyTimeout at most: waiting
// requests would use up the connections that /livez needs.
func (h *Health) Ready() error {
	if h.stopping.Load() {
		return errors.New("the service is stopping")
	}
	var err error
	select {
	case result := <-h.checks.DoChan("", h.run):
		err = result.Err
	case <-time.After(readyTimeout):
		err = errHangs
		if last := h.lastErr.Load(); last != nil && *last != nil { // it may be the reason
			err = fmt.Errorf("%w; the previous check failed: %w", errHangs, *last)
		}
	}
	if changed := h.notReady.Swap(err != nil) != (err != nil); changed && err != nil {
		h.log.Warn("not ready", "reason", err.Error())
	} else if changed {
		h.log.Info("ready again")
	}
	return err
}

// run makes a check. It does not depend on the request that started it, which may end first.
func (h *Health) run() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	err := h.check(ctx)
	h.lastErr.Store(&err)
	return nil, err
}
