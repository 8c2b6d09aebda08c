// Package machine reads the limits that the machine and the container set: memory, open files, processors. It also
// syncs folders on systems that support it.
package machine

import (
	"errors"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Limits is what the process may use.
type Limits struct {
	Processors int    // GOMAXPROCS, which respects the CPU limit of the control group
	Files      uint64 // open files at once; math.MaxUint64 where it is unlimited or unknown
	Memory     int64  // bytes; math.MaxInt64 where it is unlimited
}

// Read returns the limits of this process.
func Read() Limits {
	return Limits{Processors: runtime.GOMAXPROCS(0), Files: maxFiles(), Memory: memoryLimit("/")}
}

// SyncFolder makes the directory entry of a file durable. Windows can't sync a folder, so it does nothing there.
func SyncFolder(file string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// memoryLimit is the smallest limit of the control groups that contain the process, in either version of control
// groups, with the file systems /proc and /sys below root.
func memoryLimit(root string) int64 {
	limit := int64(math.MaxInt64)
	text, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(fields) != 3 {
			continue
		}
		folder, file := "sys/fs/cgroup", "memory.max"
		if fields[1] == "memory" {
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if fields[1] != "" {
			continue
		}
		// The limits of all parent groups apply too. In a container, the path may be a path of the host, of which only
		// the root exists here.
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			value, _ := os.ReadFile(path.Join(root, folder, group, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(value)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}
