package telemetry_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/telemetry"
)

func ask(h *telemetry.Health, path string) (status int, body string, took time.Duration) {
	w, began := httptest.NewRecorder(), time.Now()
	h.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String(), time.Since(began)
}

// However many ask, there is one check at a time, and nobody waits longer for it than a second.
func TestCheckHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks, under atomic.Int32
		answers := make(chan error)
		h := telemetry.NewHealth(func(context.Context) error {
			checks.Add(1)
			if under.Add(1) > 1 {
				t.Error("two checks at once")
			}
			defer under.Add(-1)
			return <-answers
		})
		began := time.Now()
		want := func(status int, body string, after time.Duration) {
			t.Helper()
			gotStatus, gotBody, _ := ask(h, "/readyz")
			if gotStatus != status || gotBody != body || time.Since(began) != after {
				t.Errorf("/readyz = %d %q after %v, want %d %q after %v", gotStatus, gotBody, time.Since(began), status, body, after)
			}
			if status, _, took := ask(h, "/livez"); status != 200 || took != 0 {
				t.Errorf("/livez = %d after %v", status, took)
			}
		}
		var probes sync.WaitGroup
		for range 20 {
			probes.Go(func() { want(503, "not ready: the database has not answered for 1 s\n", time.Second) })
		}
		probes.Wait()
		time.Sleep(1500 * time.Millisecond)
		for range 20 { // it is known by now
			want(503, "not ready: the database has not answered for 2 s\n", 2500*time.Millisecond)
		}
		answers <- errors.New("no lock")
		synctest.Wait()

		// The next one hangs too, and what the first has found is told.
		want(503, "not ready: the database has not answered for 1 s; the check before said: no lock\n", 3500*time.Millisecond)
		answers <- errors.New("no disk")
		synctest.Wait()
		if n := checks.Load(); n != 2 {
			t.Errorf("%d checks, want 2", n)
		}

		// Those who ask together hear the same, as soon as it is known.
		for body, err := range map[string]error{"ready\n": nil, "not ready: no disk\n": errors.New("no disk")} {
			before := checks.Load()
			began = time.Now()
			for range 20 {
				probes.Go(func() {
					if status, got, took := ask(h, "/readyz"); (status == 200) != (err == nil) || got != body || took != 500*time.Millisecond {
						t.Errorf("/readyz = %d %q after %v, want %q after 500 ms", status, got, took, body)
					}
				})
			}
			time.Sleep(500 * time.Millisecond)
			answers <- err
			probes.Wait()
			if n := checks.Load() - before; n != 1 {
				t.Errorf("%d checks for 20 at once, want 1", n)
			}
		}
	})
}

// A check ends some time, whoever waits, and who asks after it has ended hears of a new one.
func TestChecksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		h := telemetry.NewHealth(func(ctx context.Context) error {
			if n++; n > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if status, body, _ := ask(h, "/readyz"); status != 503 || !strings.Contains(body, "has not answered") {
			t.Errorf("/readyz = %d %q", status, body)
		}
		time.Sleep(5 * time.Second)
		if status, body, took := ask(h, "/readyz"); status != 200 || body != "ready\n" || took != 0 {
			t.Errorf("/readyz = %d %q after %v, want ready at once", status, body, took)
		}
		h.Stopping()
		if status, body, _ := ask(h, "/readyz"); status != 503 || body != "not ready: the service is stopping\n" {
			t.Errorf("/readyz = %d %q, want that it is stopping", status, body)
		}
	})
}
