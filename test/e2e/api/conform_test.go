package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"plantstore/internal/conform"
	"plantstore/test/testkit"
)

// The product passes every case of plantstore conform, on each engine and beside other plants, and nothing remains.
func TestConform(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db, address, wish := e.Database(t), testkit.FreeAddress(t), filepath.Join(t.TempDir(), "restart")
			start := func() *testkit.Server {
				return testkit.StartFixed(t, db, "--listen", address, "--webhook-targets", "private")
			}
			s := start()
			s.Create(t, `{"id":1,"name":"Fern"}`)
			ended, restarted := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(restarted)
				for ; ; time.Sleep(20 * time.Millisecond) {
					select {
					case <-ended:
						return
					default:
					}
					if _, err := os.Stat(wish); err == nil {
						s.Kill()
						s = start()
						os.Remove(wish) // which the command waits for
					}
				}
			}()
			out, errs, code := testkit.Run(t, []string{"PLANTSTORE_TOKEN=" + s.Token}, "conform", s.URL, "--json",
				"--webhook-listen", "127.0.0.1:0", "--restart", "touch "+wish+"; while [ -e "+wish+" ]; do sleep 0.02; done")
			close(ended)
			<-restarted
			var report conform.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || errs != "" {
				t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
			}
			if n := report.Counts[conform.Passed]; n != len(conform.Cases()) || !slices.Equal(report.Levels, conform.Levels) {
				t.Errorf("%d cases of %d passed, in the levels %q", n, len(conform.Cases()), report.Levels)
			}
			testkit.WantResponse(t, "afterwards", s.Do(t, "GET", "/plants", ""), 200, `[{"id":1,"name":"Fern"}]`)
			testkit.WantResponse(t, "afterwards", s.Do(t, "GET", "/webhooks", ""), 200, `[]`)
		})
	}
}

// A sandbox conforms too, without webhooks and restarts: its limits do not matter to the kit.
func TestSandboxConforms(t *testing.T) {
	t.Parallel()
	out, errs, code := testkit.Run(t, nil, "sandbox", "--", testkit.Binary, "conform", "--json")
	var report conform.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	if failed, skipped := report.Counts[conform.Failed], report.Counts[conform.Skipped]; failed != 0 || skipped != 3 {
		t.Errorf("%d failed, %d skipped; want none, and the cases of webhooks and restarts", failed, skipped)
	}
}
