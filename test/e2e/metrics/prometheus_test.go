package metrics

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

const rulesFile = "plantstore.rules.yml"

// promtool runs the program of Prometheus in a folder and returns what it printed.
func promtool(t *testing.T, folder, stdin string, args ...string) (printed string, err error) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		testkit.Unavailable(t, "%v", err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdin = folder, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The metrics of each engine have no mistake that promtool knows, except that it recommends a name without _count for
// db_client_connection_count, which is the name that OpenTelemetry gives it.
func TestSyntax(t *testing.T) {
	testkit.Long(t)
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			got := scrapeWithPlants(t, startWithPlants(t, e))
			printed, err := promtool(t, "", got.text, "check", "metrics")
			for line := range strings.Lines(printed) {
				if !strings.HasPrefix(line, "db_client_connection_count non-histogram") {
					t.Errorf("promtool check metrics: %v, %s", err, line)
				}
			}
			if n := got.values[`plantstore_nodes{state="ok"}`]; strings.HasPrefix(e.Name, "citus") && n < 2 {
				t.Errorf("%v nodes are ok", n)
			}
		})
	}
}

// The configuration and the rules are valid, and the unit tests of the rules pass. The queries of the dashboard and of
// the documentation are valid too.
func TestPromtool(t *testing.T) {
	testkit.Long(t)
	queries := "groups:\n- name: queries\n  rules:\n"
	documented := regexp.MustCompile(`(?m)^histogram_quantile.*$`).FindAllString(monitoring(t), -1)
	for i, query := range append(panelExpressions(t), documented...) {
		queries += fmt.Sprintf("  - record: query%d\n    expr: %q\n", i, query)
	}
	file := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(file, []byte(queries), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"}, {"check", "rules", rulesFile},
		{"test", "rules", "plantstore.rules.test.yml"}, {"check", "rules", file},
	} {
		printed, err := promtool(t, filepath.Join(testkit.Root(), "deploy", "prometheus"), "", args...)
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, printed)
		}
	}
}
