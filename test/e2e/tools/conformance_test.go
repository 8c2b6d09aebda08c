package tools

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/api"
	"plantstore/internal/conform"
	"plantstore/test/testkit"
)

// docs/conformance.md ends with the results of running the cases against the product and against Prism.
func TestConformance(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	description := decode[struct{ Info struct{ Version string } }](t, api.Description("json", "", false))
	rows := "| server | date | level | passed | failed | cases that fail |\n|---|---|---|---|---|---|\n"
	names := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}
	for _, e := range testkit.Engines {
		s := testkit.Start(t, e.Database(t), "--webhook-targets", "private")
		name := "Plant Store " + description.Info.Version + " on " + names[e.Name]
		rows += results(t, name, s.URL, s.Token, "--webhook-listen", "127.0.0.1:0")
	}
	prism := "Prism " + strings.TrimSpace(run(t, "prism", "--version"))
	to := startPrism(t, mock, write(t, "openapi.json", sample(t)), "")
	rows += results(t, prism+", a mock of the sample", to.URL, to.Token,
		"--level", conform.Specification, "--level", conform.Sample)

	page := filepath.Join(testkit.Root(), "docs", "conformance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, old, found := strings.Cut(string(text), "| server |")
	old = "| server |" + old
	if !found {
		t.Fatalf("%s has no table of results", page)
	}
	if *update {
		if err := os.WriteFile(page, []byte(head+rows), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if date.ReplaceAllString(old, "") != date.ReplaceAllString(rows, "") {
		t.Errorf("%s has\n%swant (run the test with -update)\n%s", page, old, rows)
	}
}

var date = regexp.MustCompile(`\d{4}-\d\d-\d\d`)

// results runs conform and returns a row of the table for each level that the server claims.
func results(t *testing.T, server, url, token string, args ...string) (rows string) {
	t.Helper()
	args = append([]string{"conform", url, "--json"}, args...)
	out, errs, code := testkit.Run(t, []string{"PLANTSTORE_TOKEN=" + token}, args...)
	if code > 1 || errs != "" {
		t.Fatalf("%s: exit %d, %s", server, code, errs)
	}
	report := decode[conform.Report](t, []byte(out))
	for _, level := range report.Levels {
		counts, failed := report.Of(level), []string{}
		for _, r := range report.Results {
			if r.Level == level && r.Outcome == conform.Failed {
				failed = append(failed, r.ID)
			}
		}
		ids := strings.ReplaceAll(strings.Join(failed, ", "), ", spec-", ", ")
		rows += fmt.Sprintf("| %s | %s | `%s` | %d | %d | %s |\n", server, time.Now().UTC().Format(time.DateOnly), level,
			counts[conform.Passed], counts[conform.Failed], cmp.Or(ids, "none"))
	}
	return rows
}
