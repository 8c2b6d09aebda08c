package machine

import (
	"os"
	"strconv"
	"syscall"
)

// LowerPriority lets other processes use the processors first. It is for work that can take longer.
func LowerPriority() {
	threads, _ := os.ReadDir("/proc/self/task") // each has a priority of its own, which new ones inherit
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			syscall.Setpriority(syscall.PRIO_PROCESS, id, 19)
		}
	}
}
