package telemetry_test

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/telemetry"
	"plantstore/test/testkit"
)

// take returns the lines of a log since the last call.
func take(log *testkit.Output) []string {
	defer log.Truncate(0)
	return strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
}

// newText returns a handler that writes text without the time.
func newText(to io.Writer) slog.Handler {
	return slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Of each kind, one record is written in a second, with the number of those that were left out before it.
func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := new(testkit.Output)
		log := slog.New(telemetry.NewRepeats(newText(written)))
		for i := range 3000 {
			log.Info("request", "request_id", fmt.Sprint("a", i), "route", "/plants", "status", 503, "error", 50304)
			if i < 2 {
				log.Error("request", "request_id", fmt.Sprint("b", i), "route", "/plants", "status", 500, "error", 50001)
			}
		}
		log.Info("request", "request_id", "c", "route", "/token", "status", 503, "error", 50304)
		log.Info("TLS handshake failed", "from", "192.0.2.1:1")
		wantLines(t, take(written),
			"level=INFO msg=request request_id=a0 route=/plants status=503 error=50304",
			"level=ERROR msg=request request_id=b0 route=/plants status=500 error=50001",
			"level=INFO msg=request request_id=c route=/token status=503 error=50304",
			`level=INFO msg="TLS handshake failed" from=192.0.2.1:1`)

		time.Sleep(time.Second)
		log.Info("request", "request_id", "d", "route", "/plants", "status", 503, "error", 50304)
		log.Info("request", "request_id", "e", "route", "/token", "status", 503, "error", 50304)
		time.Sleep(time.Second)
		log.Info("request", "request_id", "f", "route", "/plants", "status", 503, "error", 50304)
		wantLines(t, take(written),
			"level=INFO msg=request request_id=d route=/plants status=503 error=50304 more=2999",
			"level=INFO msg=request request_id=e route=/token status=503 error=50304",
			"level=INFO msg=request request_id=f route=/plants status=503 error=50304")
	})
}
