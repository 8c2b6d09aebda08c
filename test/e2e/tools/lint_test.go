package tools

import (
	"os"
	"path/filepath"
	"testing"
)

// The rules of Spectral for OpenAPI find nothing.
func TestSpectral(t *testing.T) {
	t.Parallel()
	s := serve(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("extends: spectral:oas\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "spectral", "lint", "--fail-severity=hint", "--ruleset", rules, describe(t, s, "openapi.json"),
		describe(t, s, "openapi.yaml"))
}
