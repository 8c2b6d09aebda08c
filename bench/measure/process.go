package measure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Usage returns what a process and its children, including those that have ended, have used since they started.
func Usage(pid int) (Used, error) {
	used, err := own(pid)
	if err != nil {
		return Used{}, err
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(text)) {
			id, _ := strconv.Atoi(child)
			if u, err := Usage(id); err == nil { // if it has just ended, its parent has its sums
				used.CPU += u.CPU
				used.Bytes += u.Bytes
				used.RSS += u.RSS
				used.Peak += u.Peak
			}
		}
	}
	return used, nil
}

func own(pid int) (Used, error) {
	var used Used
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return used, err
	}
	// The name, in parentheses, may contain spaces; the times are fields 14 to 17, those of ended children the last two.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return used, fmt.Errorf("process %d has a short stat file", pid)
	}
	times := fields[11:15]
	if cpu, ok := processTime(pid); ok {
		used.CPU, times = cpu, fields[13:15]
	}
	for _, field := range times {
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return used, err
		}
		used.CPU += time.Duration(ticks) * tick
	}
	used.Bytes = value(pid, "io", "write_bytes")
	used.RSS = value(pid, "status", "VmRSS") << 10
	used.Peak = value(pid, "status", "VmHWM") << 10
	return used, nil
}

// Busy returns how long all cores together have been busy since the machine started, and how long other virtual
// machines kept them from it.
func Busy() (busy, stolen time.Duration) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseInt(field, 10, 64)
		switch {
		case err != nil || i == 4 || i == 5 || i > 8:
		case i == 8:
			stolen = time.Duration(n) * tick
		default: // user, nice, system; then idle and waiting; then irq, softirq, stolen
			busy += time.Duration(n) * tick
		}
	}
	return busy, stolen
}

// value returns the number after a name in one of the files of a process, or 0.
func value(pid int, file, name string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}
