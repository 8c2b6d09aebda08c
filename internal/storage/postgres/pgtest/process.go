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

// daemon is a process that ends with the test binary, and can be started again.
type daemon struct {
	logFile string
	process *os.Process   // nil if another process has started it
	exited  chan struct{} // closed when the process has exited
}

// run starts the process, and returns when ping succeeds.
func (d *daemon) run(cmd *exec.Cmd, ping func() error) error {
	log, err := os.OpenFile(d.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	exited, started := make(chan struct{}), make(chan error)
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
	if err := <-started; err != nil {
		return err
	}
	d.process, d.exited = cmd.Process, exited
	for deadline := time.Now().Add(timeout); ; {
		if err = ping(); err == nil {
			return nil
		}
		select {
		case <-exited:
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(deadline) {
				continue
			}
		}
		text, _ := os.ReadFile(d.logFile)
		return fmt.Errorf("%s accepts no connections: %w\n%s", cmd.Path, err, text)
	}
}

// end sends a signal, and returns when the process has exited.
func (d *daemon) end(signal syscall.Signal) error {
	if err := d.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.exited:
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
