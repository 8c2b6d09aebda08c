package metrics

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
)

const (
	rulesFile = "plantstore.rules.yml"
	created   = 5 // plants in each database
)

// The metrics of each engine are well formed, documented, and enough for the rules and the dashboard. A real Prometheus
// scrapes them and evaluates both.
func TestPrometheus(t *testing.T) {
	union := scrape{families: map[string]string{}, values: map[string]float64{}}
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			s := startWithPlants(t, e)
			var got scrape
			testkit.WaitFor(t, "the size of the database", func() bool {
				got = newScrape(t, s)
				return got.values["plantstore_database_bytes"] > 0
			})
			checkSyntax(t, got.text)
			maps.Copy(union.families, got.families)
			maps.Copy(union.values, got.values)
			switch e.Name {
			case "citus by id":
				if n := got.values[`plantstore_nodes{state="ok"}`]; n < 2 {
					t.Errorf("%v nodes are ok", n)
				}
				return
			case "postgres":
				wantConnections(t, got)
			}
			wantScraped(t, strings.TrimPrefix(s.Ops, "http://"))
		})
	}
	t.Run("with a certificate", func(t *testing.T) {
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
		if union.has(name) {
			t.Errorf("servers without TLS have %s", name)
		}
		maps.Copy(union.families, got.families)
	})
	t.Run("after a backup", func(t *testing.T) { maps.Copy(union.families, wantBackupTime(t, union).families) })
	if !pgtest.HasCitus() {
		union.families["plantstore_nodes"] = "gauge"
	}
	t.Run("documentation", func(t *testing.T) { wantDocumented(t, union) })
	t.Run("names in rules and dashboard", func(t *testing.T) {
		for where, expressions := range map[string][]string{"rules": ruleExpressions(t), "dashboard": panelExpressions(t)} {
			for _, e := range expressions {
				for _, name := range metricsIn(e) {
					if !union.has(name) {
						t.Errorf("the %s use %s, which no server has: %s", where, name, e)
					}
				}
			}
		}
	})
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

// program returns the path of a program of Debian's package prometheus.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		testkit.Unavailable(t, "%v", err)
	}
	return path
}

// checkSyntax checks what /metrics returns. promtool recommends a name without _count for db_client_connection_count,
// which is the name that OpenTelemetry gives it.
func checkSyntax(t *testing.T, text string) {
	t.Helper()
	cmd := exec.Command(program(t, "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "db_client_connection_count non-histogram") {
			t.Errorf("promtool check metrics: %v, %s", err, line)
		}
	}
}

// Each rule has what an operator needs, and a unit test.
func TestRules(t *testing.T) {
	dir := filepath.Join(testkit.Root(), "deploy", "prometheus")
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"}, {"check", "rules", rulesFile},
		{"test", "rules", "plantstore.rules.test.yml"},
	} {
		cmd := exec.Command(program(t, "promtool"), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	docs, tests := monitoring(t), testkit.DeployFile(t, "prometheus/plantstore.rules.test.yml")
	for _, r := range rules(t) {
		for _, name := range []string{"summary", "action", "runbook_url"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		row := fmt.Sprintf("(?m)^\\| `%s` \\| .* \\| %s \\|$", r.Alert, r.Labels["severity"])
		if !regexp.MustCompile(row).MatchString(docs) {
			t.Errorf("docs/operations.md has no row of %s with its severity", r.Alert)
		}
		if !strings.Contains(tests, "alertname: "+r.Alert+"\n") {
			t.Errorf("%s has no unit test", r.Alert)
		}
	}
	if alerts := regexp.MustCompile("(?m)^\\| `Plantstore").FindAllString(docs, -1); len(alerts) != len(rules(t)) {
		t.Errorf("docs/operations.md has %d alerts, the rules have %d", len(alerts), len(rules(t)))
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

// monitoring is the section of docs/operations.md about metrics and alerts.
func monitoring(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Monitoring\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/operations.md has no section Monitoring")
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

// wantScraped starts two Prometheus servers that scrape a target: one stores classic histograms and evaluates the rules
// and the dashboard, the other stores native histograms.
func wantScraped(t *testing.T, target string) {
	classic := startPrometheus(t, target)
	native := startPrometheus(t, target, "--enable-feature=native-histograms")
	plants := fmt.Sprintf(`sum(plantstore_creates_total{job="plantstore", instance=%q, outcome="created"})`, target)
	creates := `{http_route="/plants", http_request_method="POST", http_response_status_code="200"}`
	waitQuery(t, classic, plants, fmt.Sprint(created))
	waitQuery(t, native, plants, fmt.Sprint(created))
	waitQuery(t, classic, "sum(http_server_request_duration_seconds_count"+creates+")", fmt.Sprint(created))
	waitQuery(t, native, "histogram_count(sum(http_server_request_duration_seconds"+creates+"))", fmt.Sprint(created))
	waitQuery(t, native, "histogram_quantile(1, sum(http_server_request_duration_seconds"+creates+")) > bool 0", "1")
	waitQuery(t, native, `histogram_count(plantstore_commit_batch_plants{operation="create"}) > bool 0`, "1")
	documented := regexp.MustCompile(`(?m)^histogram_quantile.*$`).FindAllString(monitoring(t), -1)
	for _, expression := range append(panelExpressions(t), documented...) {
		if _, err := query(classic, expression); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
	testkit.WaitFor(t, "the rules to be evaluated", func() bool {
		response, err := get(classic + "/api/v1/rules")
		return err == nil && strings.Count(response, `"health":"ok"`) >= len(rules(t))
	})
	response, err := get(classic + "/api/v1/alerts")
	filling := strings.Count(response, `"alertname":"PlantstoreDiskFillsUp"`) // pending while other programs write much
	if err != nil || strings.Count(response, `"alertname"`) != filling {
		t.Errorf("alerts of a healthy server: %s, %v", response, err)
	}
}

// startPrometheus starts a Prometheus with the configuration in deploy/ for one target, and returns its address.
func startPrometheus(t *testing.T, target string, args ...string) string {
	t.Helper()
	dir, address := t.TempDir(), testkit.FreeAddress(t)
	config := testkit.DeployFile(t, "prometheus/prometheus.yml")
	config = testkit.ReplaceOnce(t, config, "127.0.0.1:8081", target)
	config = testkit.ReplaceOnce(t, config, "scrape_interval: 15s", "scrape_interval: 1s")
	config = testkit.ReplaceOnce(t, config, "evaluation_interval: 15s", "evaluation_interval: 1s")
	for name, text := range map[string]string{
		"prometheus.yml": config, rulesFile: testkit.DeployFile(t, "prometheus/"+rulesFile),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program(t, "prometheus"), append(args, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)...)
	var log testkit.Output
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the log of Prometheus:\n%s", &log)
		}
	})
	return "http://" + address
}

func get(address string) (string, error) {
	response, err := testkit.HTTP.Get(address)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// query returns the values of the series of a result.
func query(prometheus, expression string) (values []string, err error) {
	text, err := get(prometheus + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	var response struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	err = json.Unmarshal([]byte(text), &response)
	for _, r := range response.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values, err
}

func waitQuery(t *testing.T, prometheus, expression, want string) {
	t.Helper()
	testkit.WaitFor(t, expression+" to be "+want, func() bool {
		got, err := query(prometheus, expression)
		return err == nil && slices.Equal(got, []string{want})
	})
}
