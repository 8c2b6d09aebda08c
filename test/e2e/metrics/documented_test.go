package metrics

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"plantstore/test/testkit"
)

const created = 5 // plants in each database

// The metrics of each engine are documented, and enough for the rules and the dashboard.
func TestMetrics(t *testing.T) {
	t.Parallel()
	union := scrape{families: map[string]string{"plantstore_nodes": "gauge"}, values: map[string]float64{}} // of Citus
	for _, e := range testkit.Engines {
		got := scrapeWithPlants(t, startWithPlants(t, e))
		maps.Copy(union.families, got.families)
		maps.Copy(union.values, got.values)
		if e.Name == "postgres" {
			wantConnections(t, got)
		}
	}
	maps.Copy(union.families, wantCertificateTime(t, union).families)
	maps.Copy(union.families, wantBackupTime(t, union).families)
	wantDocumented(t, union)
	for where, expressions := range map[string][]string{"rules": ruleExpressions(t), "dashboard": panelExpressions(t)} {
		for _, e := range expressions {
			for _, name := range metricsIn(e) {
				if !union.has(name) {
					t.Errorf("the %s use %s, which no server has: %s", where, name, e)
				}
			}
		}
	}
}

// scrapeWithPlants waits until the metrics have the size of the database.
func scrapeWithPlants(t *testing.T, s *testkit.Server) (got scrape) {
	t.Helper()
	testkit.WaitFor(t, "the size of the database", func() bool {
		got = newScrape(t, s)
		return got.values["plantstore_database_bytes"] > 0
	})
	return got
}

// wantCertificateTime returns the metrics of a server with TLS.
func wantCertificateTime(t *testing.T, without scrape) scrape {
	t.Helper()
	s := testkit.Start(t, testkit.Engines[0].Database(t), testkit.TLS(t)...)
	c := s.Dial(t).(*tls.Conn)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	const name = "plantstore_tls_certificate_expiry_timestamp_seconds"
	got := newScrape(t, s)
	if want := c.ConnectionState().PeerCertificates[0].NotAfter.Unix(); got.values[name] != float64(want) {
		t.Errorf("%s is %v, want %d", name, got.values[name], want)
	}
	if without.has(name) {
		t.Errorf("servers without TLS have %s", name)
	}
	return got
}

func startWithPlants(t *testing.T, e testkit.Engine) *testkit.Server {
	t.Helper()
	s := testkit.StartFixed(t, e.Database(t))
	for id := range created {
		s.Create(t, fmt.Sprintf(`{"id":%d,"name":"Fern"}`, id))
	}
	waitValue(t, s, `plantstore_creates_total{outcome="created"}`, created)
	waitValue(t, s, "plantstore_ready", 1)
	return s
}

// wantBackupTime makes a backup whose time can't be recorded, and one whose can. It returns the metrics of a server
// after it. The file that records it is none that doctor reports.
func wantBackupTime(t *testing.T, without scrape) scrape {
	t.Helper()
	const name = "plantstore_last_backup_timestamp_seconds"
	if without.has(name) || without.values["plantstore_database_disk_free_bytes"] < 1 {
		t.Errorf("servers without a backup have %s, or not the free bytes of the disk", name)
	}
	db := filepath.Join(t.TempDir(), "plants.db")
	s, marker := testkit.StartFixed(t, db), db+".last-backup"
	if err := os.Mkdir(marker, 0o700); err != nil {
		t.Fatal(err)
	}
	backup := func(to string) (stderr string) {
		t.Helper()
		_, stderr, code := testkit.Run(t, nil, "backup", "--db", db, "--to", filepath.Join(t.TempDir(), to))
		if code != 0 {
			t.Errorf("backup: exit code %d, %s", code, stderr)
		}
		return stderr
	}
	if stderr := backup("first"); !strings.Contains(stderr, "its time was not recorded for the metrics") {
		t.Errorf("backup beside a folder with the name of its record: %s", stderr)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Unix()
	backup("second")
	got := newScrape(t, s)
	if at := int64(got.values[name]); at < before || at > time.Now().Unix() {
		t.Errorf("%s is %d, want at least %d", name, at, before)
	}
	if out, _, code := testkit.Run(t, nil, "doctor", "--db", db); code != 0 || strings.Contains(out, "last-backup") {
		t.Errorf("doctor: exit code %d, %s", code, out)
	}
	return got
}

func wantConnections(t *testing.T, got scrape) {
	t.Helper()
	series := func(name, state string) float64 {
		return got.values[fmt.Sprintf("%s{db_client_connection_pool_name=%q%s}", name, "postgresql", state)]
	}
	idle := series("db_client_connection_count", `,db_client_connection_state="idle"`)
	if most := series("db_client_connection_max", ""); idle < 1 || idle > 2*most || most != 8 {
		t.Errorf("%v idle connections to PostgreSQL, of %v", idle, most)
	}
}

// Each rule has what an operator needs, and a unit test.
func TestRules(t *testing.T) {
	docs, tests := monitoring(t), testkit.DeployFile(t, "prometheus/plantstore.rules.test.yml")
	for _, r := range rules(t) {
		for _, name := range []string{"summary", "action", "runbook_url"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		row := fmt.Sprintf("(?m)^\\| `%s` \\| .* \\| %s \\|$", r.Alert, r.Labels["severity"])
		if !regexp.MustCompile(row).MatchString(docs) {
			t.Errorf("docs/monitoring.md has no row of %s with its severity", r.Alert)
		}
		if !strings.Contains(tests, "alertname: "+r.Alert+"\n") {
			t.Errorf("%s has no unit test", r.Alert)
		}
	}
	if alerts := regexp.MustCompile("(?m)^\\| `Plantstore").FindAllString(docs, -1); len(alerts) != len(rules(t)) {
		t.Errorf("docs/monitoring.md has %d alerts, the rules have %d", len(alerts), len(rules(t)))
	}
}

type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func rules(t testing.TB) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	err := yaml.Unmarshal([]byte(testkit.DeployFile(t, "prometheus/"+rulesFile)), &file)
	if err != nil || len(file.Groups) != 1 || len(file.Groups[0].Rules) < 10 {
		t.Fatalf("%s: %v, %v", rulesFile, file, err)
	}
	return file.Groups[0].Rules
}

func ruleExpressions(t testing.TB) (all []string) {
	for _, r := range rules(t) {
		all = append(all, r.Expr)
	}
	return all
}

// panelExpressions are the queries of the dashboard, with values for its variables.
func panelExpressions(t testing.TB) (all []string) {
	t.Helper()
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(testkit.DeployFile(t, "grafana/plantstore.json")), &board); err != nil {
		t.Fatal(err)
	}
	values := strings.NewReplacer("$job", "plantstore", "$instance", ".*", "$__rate_interval", "1m")
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, values.Replace(target.Expr))
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard has %d queries", len(all))
	}
	return all
}

var (
	notMetrics = regexp.MustCompile(`\{[^}]*\}|\bby \([^)]*\)|\[[^\]]*\]`)
	identifier = regexp.MustCompile(`\b[a-z]+(_[a-z0-9]+)+\b`)
)

// metricsIn lists the metrics of an expression.
func metricsIn(expression string) (names []string) {
	for _, name := range identifier.FindAllString(notMetrics.ReplaceAllString(expression, ""), -1) {
		if name != "histogram_quantile" && name != "predict_linear" {
			names = append(names, name)
		}
	}
	return names
}

// family returns the metric that a series with this name belongs to.
func (all scrape) family(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if family, ok := strings.CutSuffix(name, suffix); ok && all.families[family] == "histogram" {
			return family
		}
	}
	return name
}

// has reports whether series can have a name.
func (all scrape) has(name string) bool {
	kind, ok := all.families[all.family(name)]
	return ok && (kind != "histogram" || all.family(name) != name)
}

// monitoring is the section of docs/monitoring.md about metrics and alerts.
func monitoring(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Monitoring\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/monitoring.md has no section Monitoring")
	}
	return section
}

// wantDocumented checks that the table has every metric, with its type, its labels and their values, and no other.
func wantDocumented(t *testing.T, got scrape) {
	names, rows := regexp.MustCompile("`([a-z]+_[a-z_]+)`"), map[string]string{}
	table := regexp.MustCompile("(?m)^\\| `.*\\| (histogram|counter|gauge) \\|.*$")
	for _, row := range table.FindAllString(monitoring(t), -1) {
		cells := strings.Split(row, "|")
		for _, m := range names.FindAllStringSubmatch(cells[1], -1) {
			rows[m[1]] = row
			if kind := strings.TrimSpace(cells[2]); got.families[m[1]] != kind {
				t.Errorf("the documentation has the %s %s, the servers have %q", kind, m[1], got.families[m[1]])
			}
		}
	}
	for name := range got.families {
		if rows[name] == "" && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is not documented", name)
		}
	}
	closed := []string{"state", "reason", "outcome", "result", "db_client_connection_state"}
	label := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	for series := range got.values {
		name, labels, _ := strings.Cut(series, "{")
		row := rows[got.family(name)]
		for _, m := range label.FindAllStringSubmatch(labels, -1) {
			asAbove := m[1] == "result" && strings.Contains(row, "as above")
			if row == "" || m[1] == "le" {
				continue
			}
			if !strings.Contains(row, "`"+m[1]+"`") ||
				slices.Contains(closed, m[1]) && !asAbove && !strings.Contains(row, "`"+m[2]+"`") {
				t.Errorf("the row of %s lacks %s", name, m[0])
			}
		}
	}
}
