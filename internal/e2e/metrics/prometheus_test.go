package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/testkit"
)

const rulesFile = "plantstore.rules.yml"

// A real Prometheus scrapes each engine, and evaluates the rules and the dashboard.
func TestPrometheus(t *testing.T) {
	testkit.Long(t)
	for _, e := range testkit.OneOfEach() {
		t.Run(e.Name, func(t *testing.T) {
			s := startWithPlants(t, e)
			got := scrapeWithPlants(t, s)
			checkSyntax(t, got.text)
			if n := got.values[`plantstore_nodes{state="ok"}`]; strings.HasPrefix(e.Name, "citus") && n < 2 {
				t.Errorf("%v nodes are ok", n)
			}
			wantScraped(t, strings.TrimPrefix(s.Ops, "http://"))
		})
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

// The configuration and the rules are valid, and the unit tests of the rules pass.
func TestPromtool(t *testing.T) {
	testkit.Long(t)
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"}, {"check", "rules", rulesFile},
		{"test", "rules", "plantstore.rules.test.yml"},
	} {
		cmd := exec.Command(program(t, "promtool"), args...)
		cmd.Dir = filepath.Join(testkit.Root(), "deploy", "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
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
