//go:build linux

package overload

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"plantstore/test/testkit"
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
