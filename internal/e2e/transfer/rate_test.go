package transfer

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/measure"
)

// BenchmarkImport measures an import with 64 requests in flight and, alternating, the load generator of the benchmarks
// with 64 clients, against the same server. The ratios are medians over the rounds: of the rates, which depend on what
// else the machine does, and of the creates for each second of processor time of the client and the server together.
//
//	go test ./internal/e2e/transfer -run '^$' -bench Import
func BenchmarkImport(b *testing.B) {
	const n, rounds = 100_000, 5
	s := testkit.Start(b, b.TempDir()+"/plants.db")
	for b.Loop() {
		var ratios, cpuRatios, imports, loads []float64
		for round := range rounds {
			first := fmt.Sprint((time.Now().UnixMilli() % 1_000_000) * 1_000_000) // another range of ids each time
			report := testkit.Creates(b, s, "-warm", "500ms", "-window", "3s", "-first", first)
			var file strings.Builder
			for i := range n {
				fmt.Fprintf(&file, "{\"id\":%d,\"name\":\"%s\",\"tag\":\"%s\"}\n", time.Now().Unix()*1_000_000+int64(i),
					measure.Name(10), measure.Tag)
			}
			path := b.TempDir() + fmt.Sprint("/", round)
			if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			cmd := exec.Command(testkit.Binary, "plants", "import", path)
			cmd.Env = append(os.Environ(), environment(s)...)
			start, before := time.Now(), s.CPUTime(b)
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v %.1000s", err, out)
			}
			imported := n / time.Since(start).Seconds()
			cpu := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() + s.CPUTime(b) - before) / n
			loadCPU := report.LoadCPU + report.Server[0].CPU/time.Duration(report.Count)
			cpuRatios = append(cpuRatios, float64(loadCPU)/float64(cpu))
			loaded := float64(report.Count) / report.Seconds
			ratios, imports, loads = append(ratios, imported/loaded), append(imports, imported), append(loads, loaded)
			b.Logf("round %d: import %.0f/s, %v each; load generator %.0f/s, %v each", round+1, imported, cpu, loaded, loadCPU)
		}
		for _, all := range [][]float64{ratios, cpuRatios, imports, loads} {
			slices.Sort(all)
		}
		b.ReportMetric(imports[rounds/2], "imported/s")
		b.ReportMetric(loads[rounds/2], "load/s")
		b.ReportMetric(ratios[rounds/2], "ratio")
		b.ReportMetric(cpuRatios[rounds/2], "CPU-ratio")
	}
}
