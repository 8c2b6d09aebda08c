//go:build linux

package overload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/test/testkit"
	"plantstore/test/testkit/measure"
)

// startLimited starts the product with shell commands such as ulimit before it, in a control group with a memory limit
// if memory is not 0, and on the first processor alone, so that the load on the others takes nothing from it.
func startLimited(t *testing.T, memory int64, limits string, args ...string) *testkit.Server {
	t.Helper()
	script := limits + ` exec taskset -c 0 "$@"`
	if memory > 0 {
		script = "echo $$ >" + memoryGroup(t, memory) + " && " + script
	}
	if limits == "" && runtime.NumCPU() < 2 {
		testkit.Unavailable(t, "the server and its load need a processor each")
	}
	serve := testkit.Serve(filepath.Join(t.TempDir(), "plants.db"), args...)
	s := testkit.Launch(t, exec.Command("sh", append([]string{"-c", script, "sh"}, serve.Args...)...))
	s.WaitServing()
	return s
}

// memoryGroup creates a control group with a memory limit and returns the file that adds a process to it.
func memoryGroup(t *testing.T, limit int64) string {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
		os.WriteFile(root+"/cgroup.subtree_control", []byte("+memory"), 0)
	}
	group, err := os.MkdirTemp(root, "plantstore-test-")
	if err == nil {
		t.Cleanup(func() { // The kernel releases it a moment after its last process.
			testkit.WaitFor(t, "the control group to be removed", func() bool { return os.Remove(group) == nil })
		})
		err = os.WriteFile(filepath.Join(group, file), []byte(strconv.FormatInt(limit, 10)), 0)
	}
	if err != nil {
		testkit.Unavailable(t, "memory cannot be limited here: %v", err)
	}
	return filepath.Join(group, "cgroup.procs")
}

// databaseOf is the value of --db of a server.
func databaseOf(s *testkit.Server) string { return s.Cmd.Args[slices.Index(s.Cmd.Args, "--db")+1] }

// report is the result of load.
type report struct{ measure.Report }

func (r report) rate() float64 { return float64(r.Count) / r.Seconds }

func (r report) String() string {
	var refusals measure.Histogram
	for _, took := range r.Refusals {
		refusals.Record(took)
	}
	us := time.Microsecond
	return fmt.Sprintf("%.0f creates/s (p50 %v, p99 %v), %.0f refused/s (p50 %v, p99 %v); "+
		"%d arrivals, %d sent, %d found no client free, %d not connected, %d broken, %d wrong, %d late %s",
		r.rate(), r.P50.Round(us), r.P99.Round(us),
		float64(r.Refused)/r.Seconds, refusals.Quantile(0.5).Round(us), refusals.Quantile(0.99).Round(us),
		r.Arrivals, r.Sent, r.Unsent, r.Unconnected, r.Broken, r.Wrong, r.Late, r.Reason)
}

var nextIDs atomic.Int64

// load sends creates from another process on another processor. Its arguments are those of testkit/load.
func load(t *testing.T, s *testkit.Server, token string, args ...string) report {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "taskset", append([]string{"-c", "1", loadCommand(t),
		"-address", strings.TrimPrefix(s.URL, "http://"), "-token", token, "-pids", strconv.Itoa(s.Cmd.Process.Pid),
		"-first", strconv.FormatInt(nextIDs.Add(1)*1_000_000_000, 10)}, args...)...)
	if slices.Contains(args, "-poll") { // with priority over other processes
		cmd = exec.CommandContext(t.Context(), "chrt", append([]string{"--fifo", "1"}, cmd.Args...)...)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var r report
	if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil {
		t.Errorf("load: %v %s", err, out)
	}
	return r
}

var buildLoad = sync.OnceValues(func() (string, error) {
	return testkit.BuildCommand("load", "plantstore/test/testkit/load")
})

// loadCommand builds testkit/load and returns its path.
func loadCommand(t testing.TB) string {
	t.Helper()
	path, err := buildLoad()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
