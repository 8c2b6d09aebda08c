package missing

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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

func (r *recorder) Skip(args ...any) {
	r.end = "skipped: " + fmt.Sprint(args...)
	runtime.Goexit()
}

// Without a program a test is skipped and listed, and fails in CI.
func TestReport(t *testing.T) {
	list := filepath.Join(t.TempDir(), "not-tested")
	t.Setenv("PLANTSTORE_NOT_TESTED", list)
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
	if text, err := os.ReadFile(list); err != nil || strings.TrimSuffix(string(text), "\n") != message {
		t.Errorf("the list is %q, %v, want %q", text, err, message)
	}
}
