package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/store"
)

// After the signal to stop, a start must end within startGrace. A service that has started may take longer.
func TestEndHungStart(t *testing.T) {
	failure := errors.New("it failed")
	for _, test := range []struct {
		what       string
		start, run time.Duration // until started is closed and until run returns; the signal arrives after 10 s
		want       string
	}{
		{"it fails", 0, time.Second, "it failed"},
		{"the signal ends the start", time.Hour, 10*time.Second + startGrace - 1, "it failed"},
		{"the start hangs", time.Hour, time.Hour,
			"hangup signal received before the service was ready, and the database has not responded for 5s"},
		{"the start completes after the signal", 10*time.Second + startGrace - 1, time.Minute, "it failed"},
		{"it has started", time.Second, time.Minute, "it failed"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, signal := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Second, func() { signal(errors.New("hangup signal received")) })
			started, begin := make(chan struct{}), time.Now()
			time.AfterFunc(test.start, func() { close(started) })
			err := endHungStart(ctx, started, func() error {
				time.Sleep(test.run)
				return failure
			})
			if err == nil || err.Error() != test.want {
				t.Errorf("%s: %v, want %s", test.what, err, test.want)
			}
			if took := time.Since(begin); strings.Contains(test.want, "hangup") && took != 10*time.Second+startGrace {
				t.Errorf("%s: returned after %v", test.what, took)
			}
			time.Sleep(time.Hour) // until every goroutine has ended
		})
	}
}

// The signal to stop ends a start that hangs while it opens the database.
func TestServeHangs(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // starts the goroutine of os/signal outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		end := make(chan struct{})
		var stderr bytes.Buffer
		env := environment{io.Discard, &stderr, variables{}.get,
			func(context.Context, string, access, bool) (store.Store, error) {
				<-end
				return nil, store.ErrUnavailable
			}, nil}
		code := env.run(ctx, []string{"serve"})
		want := "plantstore serve: context canceled before the service was ready, and the database has not responded for 5s\n"
		if code != 1 || stderr.String() != want {
			t.Errorf("exit %d, %q, want exit 1 and %q", code, stderr.String(), want)
		}
		close(end)
	})
}
