package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/telemetry"
	"plantstore/test/testkit"
)

// want requests /readyz and returns how long the response took.
func want(t *testing.T, h *telemetry.Health, status int, body string) (took time.Duration) {
	t.Helper()
	w, started := httptest.NewRecorder(), time.Now()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	contentType, cache := w.Header().Get("Content-Type"), w.Header().Get("Cache-Control")
	if w.Code != status || w.Body.String() != body || contentType != "text/plain; charset=utf-8" || cache != "no-store" {
		t.Errorf("/readyz = %d %q %s %s, want %d %q", w.Code, w.Body, contentType, cache, status, body)
	}
	return time.Since(started)
}

// One check at a time serves all requests. They get its result as soon as it returns, and do not wait longer than a
// second for it. Then the response includes the error of the check before.
func TestChecksAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int32
		results := make(chan error)
		h := telemetry.NewHealth(func(context.Context) error {
			checks.Add(1)
			return <-results
		}, slog.New(slog.DiscardHandler))
		const hangs = "not ready: the database has not responded for 1 s"
		for i, step := range []struct {
			result error
			after  time.Duration // when the check returns
			status int
			body   string // of requests at its start
		}{
			{nil, 500 * time.Millisecond, 200, "ready\n"},
			{errors.New("no disk"), 500 * time.Millisecond, 503, "not ready: no disk\n"},
			{nil, 3 * time.Second, 503, hangs + "; the previous check failed: no disk\n"},
			{nil, 3 * time.Second, 503, hangs + "\n"},
			{nil, 0, 200, "ready\n"},
		} {
			var probes sync.WaitGroup
			for range 20 {
				probes.Go(func() {
					if took := want(t, h, step.status, step.body); took != min(step.after, time.Second) {
						t.Errorf("step %d took %v", i, took)
					}
				})
			}
			time.Sleep(step.after)
			synctest.Wait()
			results <- step.result
			probes.Wait()
			synctest.Wait()
			if n := checks.Load(); n != int32(i+1) {
				t.Errorf("%d checks after step %d, want one for each", n, i)
			}
		}
	})
}

// A check times out by itself, and a later request starts a new one. A service that stops is not ready.
func TestChecksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := telemetry.NewHealth(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, slog.New(slog.DiscardHandler))
		const hangs = "not ready: the database has not responded for 1 s"
		want(t, h, 503, hangs+"\n")
		time.Sleep(5 * time.Second)
		want(t, h, 503, hangs+"; the previous check failed: context deadline exceeded\n")
		h.Stopping()
		want(t, h, 503, "not ready: the service is stopping\n")
		time.Sleep(5 * time.Second)
	})
}

// Each change is logged once with its reason, also while nobody requests /readyz.
func TestChangesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure atomic.Pointer[error]
		log := new(testkit.Output)
		h := telemetry.NewHealth(func(ctx context.Context) error {
			err := *failure.Load()
			if err == context.DeadlineExceeded {
				<-ctx.Done()
			}
			return err
		}, slog.New(newText(log)))
		ctx, stop := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		for i, step := range []struct {
			failure error
			line    string
		}{
			{nil, ""},
			{errors.New("no disk"), `level=WARN msg="not ready" reason="no disk"`},
			{nil, `level=INFO msg="ready again"`},
			{context.DeadlineExceeded, `level=WARN msg="not ready" reason="the database has not responded for 1 s"`},
			{nil, `level=INFO msg="ready again"`},
		} {
			failure.Store(&step.failure)
			if i == 0 {
				watch.Go(func() { h.Watch(ctx) })
			}
			time.Sleep(30 * time.Second)
			wantLines(t, take(log), step.line)
		}
		stop()
		watch.Wait()
	})
}
