package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/telemetry"
)

func get(h *telemetry.Health) (status int, body string, took time.Duration) {
	w, started := httptest.NewRecorder(), time.Now()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	return w.Code, w.Body.String(), time.Since(started)
}

// One check at a time serves all requests, and none waits longer than a second for it.
func TestCheckHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks, running atomic.Int32
		results := make(chan error)
		h := telemetry.NewHealth(func(context.Context) error {
			checks.Add(1)
			if running.Add(1) > 1 {
				t.Error("two checks at once")
			}
			defer running.Add(-1)
			return <-results
		}, slog.New(slog.DiscardHandler))
		started := time.Now()
		want := func(status int, body string, after time.Duration) {
			t.Helper()
			gotStatus, gotBody, _ := get(h)
			if took := time.Since(started); gotStatus != status || gotBody != body || took != after {
				t.Errorf("/readyz = %d %q after %v, want %d %q after %v", gotStatus, gotBody, took, status, body, after)
			}
		}
		var probes sync.WaitGroup
		for range 20 {
			probes.Go(func() { want(503, "not ready: the database has not responded for 1 s\n", time.Second) })
		}
		probes.Wait()
		time.Sleep(1500 * time.Millisecond)
		for range 20 { // the timeout has passed: no request waits
			want(503, "not ready: the database has not responded for 2 s\n", 2500*time.Millisecond)
		}
		results <- errors.New("no lock")
		synctest.Wait()

		// The next check hangs too, and the response includes the error of the first.
		want(503, "not ready: the database has not responded for 1 s; the previous check failed: no lock\n",
			3500*time.Millisecond)
		results <- errors.New("no disk")
		synctest.Wait()
		if n := checks.Load(); n != 2 {
			t.Errorf("%d checks, want 2", n)
		}
	})
}

// Concurrent requests get the same result as soon as the check returns.
func TestCheckIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int32
		results := make(chan error)
		h := telemetry.NewHealth(func(context.Context) error {
			checks.Add(1)
			return <-results
		}, slog.New(slog.DiscardHandler))
		for body, err := range map[string]error{"ready\n": nil, "not ready: no disk\n": errors.New("no disk")} {
			before := checks.Load()
			var probes sync.WaitGroup
			for range 20 {
				probes.Go(func() {
					status, got, took := get(h)
					if (status == 200) != (err == nil) || got != body || took != 500*time.Millisecond {
						t.Errorf("/readyz = %d %q after %v, want %q", status, got, took, body)
					}
				})
			}
			time.Sleep(500 * time.Millisecond)
			results <- err
			probes.Wait()
			if n := checks.Load() - before; n != 1 {
				t.Errorf("%d checks for 20 concurrent requests, want 1", n)
			}
		}
	})
}

// A check times out by itself, and a later request starts a new one.
func TestChecksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		h := telemetry.NewHealth(func(ctx context.Context) error {
			if n++; n > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, slog.New(slog.DiscardHandler))
		if status, body, _ := get(h); status != 503 || !strings.Contains(body, "has not responded") {
			t.Errorf("/readyz = %d %q", status, body)
		}
		time.Sleep(5 * time.Second)
		if status, body, took := get(h); status != 200 || body != "ready\n" || took != 0 {
			t.Errorf("/readyz = %d %q after %v, want ready without waiting", status, body, took)
		}
		h.Stopping()
		if status, body, _ := get(h); status != 503 || body != "not ready: the service is stopping\n" {
			t.Errorf("/readyz = %d %q, want that it is stopping", status, body)
		}
	})
}

func TestReadiness(t *testing.T) {
	var failure error
	h := telemetry.NewHealth(func(context.Context) error { return failure }, slog.New(slog.DiscardHandler))
	want := func(status int, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		contentType, cache := w.Header().Get("Content-Type"), w.Header().Get("Cache-Control")
		if w.Code != status || w.Body.String() != body || contentType != "text/plain; charset=utf-8" || cache != "no-store" {
			t.Errorf("/readyz = %d %q %s %s, want %d %q", w.Code, w.Body, contentType, cache, status, body)
		}
	}
	want(200, "ready\n")
	failure = errors.New("the disk is full")
	want(503, "not ready: the disk is full\n")
	h.Stopping()
	want(503, "not ready: the service is stopping\nnot ready: the disk is full\n")
	failure = nil
	want(503, "not ready: the service is stopping\n")
}

// Each change is logged once with its reason, also while nobody requests /readyz.
func TestChangesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failure atomic.Pointer[error]
		log := new(lines)
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
			wantLines(t, log.take(), step.line)
		}
		stop()
		watch.Wait()
	})
}
