package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	patience     = time.Second     // a database that takes longer to answer is not ready
	checkTimeout = 5 * time.Second // longer than a store takes to say why
)

// Health answers /livez and /readyz.
type Health struct {
	check    func(context.Context) error
	stopping atomic.Bool

	mu   sync.Mutex
	now  *checking // the check under way, or nil
	last error     // of the check before
}

// checking is one check, for all who ask while it is under way. A database that hangs has one connection
// busy with that, not one for each probe.
type checking struct {
	begun time.Time
	done  chan struct{}
	err   error // once done
}

// NewHealth is ready while check returns nil, and does so within a second. There is one call of it at a time.
func NewHealth(check func(context.Context) error) *Health { return &Health{check: check} }

// Stopping makes the service not ready, for good.
func (h *Health) Stopping() { h.stopping.Store(true) }

// Handler serves the two paths.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		var reasons []string
		if h.stopping.Load() {
			reasons = append(reasons, "the service is stopping")
		}
		if err := h.ready(); err != nil {
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

// ready is what the check under way says, or a new one. It does not wait for one that has run out of
// patience, so that probes do not pile up: they would take the connections that /livez needs.
func (h *Health) ready() error {
	c, last := h.checking()
	timer := time.NewTimer(time.Until(c.begun.Add(patience)))
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-timer.C:
	}
	err := fmt.Errorf("the database has not answered for %d s", max(time.Since(c.begun), patience)/time.Second)
	if last != nil { // which took too long too, perhaps, and knew why
		err = fmt.Errorf("%w; the check before said: %w", err, last)
	}
	return err
}

func (h *Health) checking() (c *checking, last error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil {
		h.now = &checking{begun: time.Now(), done: make(chan struct{})}
		go h.run(h.now)
	}
	return h.now, h.last
}

// run makes a check, which is nobody's: who has asked first may be gone before it ends.
func (h *Health) run(c *checking) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	c.err = h.check(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now, h.last = nil, c.err
	close(c.done)
}
