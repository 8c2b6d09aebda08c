package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func DeployFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ReplaceOnce replaces a text that must be there once.
func ReplaceOnce(t *testing.T, text, from, to string) string {
	t.Helper()
	if n := strings.Count(text, from); n != 1 {
		t.Fatalf("%q stands %d times in the example, want once", from, n)
	}
	return strings.Replace(text, from, to, 1)
}
