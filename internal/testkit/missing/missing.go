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
	message := fmt.Sprintf("NOT TESTED: %s: %s", t.Name(), fmt.Sprintf(format, args...))
	// go test shows the output of a package only if it fails, so make test prints this file.
	list := os.Getenv("PLANTSTORE_NOT_TESTED")
	if f, err := os.OpenFile(list, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		fmt.Fprintln(f, message)
		f.Close()
	}
	t.Skip(message)
}
