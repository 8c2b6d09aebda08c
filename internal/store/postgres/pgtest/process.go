package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// childrenOf returns the processes whose parent is pid.
func childrenOf(pid int) (children []int) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, parent, ok := status(child); ok && parent == pid {
			children = append(children, child)
		}
	}
	return children
}

func alive(pid int) bool {
	state, _, ok := status(pid)
	return ok && state != "Z"
}

// status returns the state and the parent of a process. They follow its name, which is in parentheses and may
// contain any character.
func status(pid int) (state string, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}
