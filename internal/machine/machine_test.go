package machine

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
)

// The smallest limit of the groups that contain the process applies, in both versions of control groups.
func TestMemoryLimit(t *testing.T) {
	const v1, v2 = "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
	for name, c := range map[string]struct {
		groups string            // of /proc/self/cgroup
		files  map[string]string // limits
		want   int64
	}{
		"no groups":       {"", nil, math.MaxInt64},
		"malformed lines": {"0::\n1:memory\n\n", nil, math.MaxInt64},
		"version 2": {"0::/a/b\n", map[string]string{
			v2 + "a/b/memory.max": "max\n", v2 + "a/memory.max": "1000\n", v2 + "memory.max": "2000\n"}, 1000},
		"version 1": {"5:cpu:/x\n4:memory:/a\n0::/\n", map[string]string{
			v1 + "a/memory.limit_in_bytes": "2000\n", v1 + "memory.limit_in_bytes": "9223372036854771712\n",
			v1 + "x/memory.limit_in_bytes": "1\n", v2 + "x/memory.max": "1\n"}, 2000},
		"a path with a colon": {"0::/a:b\n", map[string]string{v2 + "a:b/memory.max": "5000"}, 5000},
		"the host's path in a container": {"4:memory:/docker/1\n", map[string]string{
			v1 + "memory.limit_in_bytes": "3000\n"}, 3000},
		"one byte":             {"0::/\n", map[string]string{v2 + "memory.max": "1"}, 1},
		"zero is not a limit":  {"0::/\n", map[string]string{v2 + "memory.max": "0"}, math.MaxInt64},
		"groups outside of / ": {"0::/../x\n", map[string]string{v2 + "x/memory.max": "7"}, 7},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "proc/self/cgroup"), c.groups)
		for path, text := range c.files {
			write(t, filepath.Join(root, path), text)
		}
		if got := memoryLimit(root); got != c.want {
			t.Errorf("%s: memoryLimit() = %d, want %d", name, got, c.want)
		}
	}
	if got := memoryLimit(t.TempDir()); got != math.MaxInt64 {
		t.Errorf("without /proc: memoryLimit() = %d", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestRead compares the limit of files with what the kernel reports.
func TestRead(t *testing.T) {
	got := Read()
	if got.Processors != runtime.GOMAXPROCS(0) || got.Memory != memoryLimit("/") {
		t.Errorf("Read() = %+v", got)
	}
	if runtime.GOOS != "linux" {
		return
	}
	text, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	soft := regexp.MustCompile(`Max open files +(\d+)`).FindSubmatch(text)
	if soft == nil || string(soft[1]) != strconv.FormatUint(got.Files, 10) {
		t.Errorf("Read() = %+v, the kernel's limits are:\n%s", got, text)
	}
}
