package missing

import (
	"fmt"
	"runtime"
	"testing"
)

// recorder is a test that records how it ended.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.end = "failed: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.end = "skipped: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Without a program a test is skipped, and fails in CI.
func TestReport(t *testing.T) {
	const message = "NOT TESTED: TestReport: strace is not installed"
	for ci, want := range map[string]string{"": "skipped: " + message, "true": "failed: strace is not installed"} {
		t.Setenv("CI", ci)
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Report(r, "%s is not installed", "strace")
		}()
		<-done
		if r.end != want {
			t.Errorf("with CI=%q the test %s, want %s", ci, r.end, want)
		}
	}
}
