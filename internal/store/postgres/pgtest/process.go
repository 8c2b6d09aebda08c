package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Suspend stops every process of the server, so that it accepts connections and does not respond, until Resume.
func (s *Server) Suspend() error { return s.signalAll(syscall.SIGSTOP) }

// Resume continues the processes that Suspend stopped.
func (s *Server) Resume() error { return s.signalAll(syscall.SIGCONT) }

func (s *Server) signalAll(signal syscall.Signal) error {
	for _, pid := range append([]int{s.process.Pid}, childrenOf(s.process.Pid)...) {
		if err := syscall.Kill(pid, signal); err != nil && err != syscall.ESRCH {
			return err
		}
	}
	return nil
}

// launch starts a process that ends with the test binary. The channel is closed when it has exited.
func launch(cmd *exec.Cmd) (exited chan struct{}, err error) {
	exited = make(chan struct{})
	started := make(chan error)
	go func() {
		// The kernel signals the process when the thread that started it ends. So this thread lives as long as
		// the process, and both end with the test binary.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	}()
	return exited, <-started
}

func end(process *os.Process, exited <-chan struct{}, signal syscall.Signal) error {
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("the server still runs %v after signal %v", timeout, signal)
	}
}

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

// stopped reports whether a process no longer runs, until it is continued.
func stopped(pid int) bool {
	state, _, ok := status(pid)
	return !ok || state == "T" || state == "Z"
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
