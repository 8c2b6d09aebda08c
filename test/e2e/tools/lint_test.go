package tools

import (
	"os"
	"path/filepath"
	"testing"
)

// The rules that Redocly recommends find neither an error nor a warning.
func TestRedocly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"openapi.json", "openapi.yaml"} {
		report := decode[struct {
			Totals   struct{ Errors, Warnings, Ignored *int }
			Problems []any
		}](t, []byte(run(t, "redocly", "lint", "--format=json", describe(t, s, name))))
		if n := report.Totals; *n.Errors+*n.Warnings+*n.Ignored > 0 || len(report.Problems) > 0 {
			t.Errorf("%s: %v", name, report.Problems)
		}
	}
}

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
