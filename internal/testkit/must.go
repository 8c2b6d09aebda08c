package testkit

import (
	"testing"
)

func Must(t *testing.T, do func() error) func() {
	return func() {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}
