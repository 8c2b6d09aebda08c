package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readyTimeout = time.Second     // a database that takes longer is not ready
	checkTimeout = 5 * time.Second // longer than a store takes to return a specific error
	watchPeriod  = 5 * time.Second // between the checks of Watch
)

// Health serves /readyz.
type Health struct {
	check    func(context.Context) error
	log      *slog.Logger
	stopping atomic.Bool

	mu       sync.Mutex
	current  *checkRun // the check in progress, or nil
	lastErr  error     // the result of the previous check
	notReady bool      // the last record in the log is "not ready"
}

// checkRun is one check, shared by all requests that arrive while it is in progress, so that a database
// that hangs occupies one connection and not one for each request.
type checkRun struct {
	started time.Time
	done    chan struct{}
	err     error // set before done is closed
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
	var reasons []string
	if h.stopping.Load() {
		reasons = append(reasons, "the service is stopping")
	}
	if err := h.Ready(); err != nil {
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
}

// Ready returns the result of the check in progress, or of a new one. It does not wait longer than
// readyTimeout after the start of the check: waiting requests would use up the connections that /livez needs.
func (h *Health) Ready() error {
	err := h.wait()
	h.mu.Lock()
	changed := h.notReady != (err != nil)
	h.notReady = err != nil
	h.mu.Unlock()
	if changed && err != nil {
		h.log.Warn("not ready", "reason", err.Error())
	} else if changed {
		h.log.Info("ready again")
	}
	return err
}

func (h *Health) wait() error {
	run, lastErr := h.startOrJoin()
	select {
	case <-run.done:
		return run.err
	case <-time.After(time.Until(run.started.Add(readyTimeout))):
	}
	elapsed := max(time.Since(run.started), readyTimeout)
	err := fmt.Errorf("the database has not responded for %d s", elapsed/time.Second)
	if lastErr != nil { // it may be the reason
		err = fmt.Errorf("%w; the previous check failed: %w", err, lastErr)
	}
	return err
}

func (h *Health) startOrJoin() (run *checkRun, lastErr error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		h.current = &checkRun{started: time.Now(), done: make(chan struct{})}
		go h.run(h.current)
	}
	return h.current, h.lastErr
}

// run makes a check. It does not depend on the request that started it, which may end first.
func (h *Health) run(c *checkRun) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	c.err = h.check(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current, h.lastErr = nil, c.err
	close(c.done)
}
