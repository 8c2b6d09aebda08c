// Package missing ends tests that need something the machine does not have.
package missing

import (
	"fmt"
	"os"
	"testing"
)

// Report ends a test that needs something the machine does not have: with a failure in CI, and otherwise with a skip
// that make test reports at its end.
func Report(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	Optional(t, format, args...)
}

// Optional is Report for something that CI may lack too, because no package manager installs it.
func Optional(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Skipf("NOT TESTED: %s: %s", t.Name(), fmt.Sprintf(format, args...)) // the command suite collects these lines
}
