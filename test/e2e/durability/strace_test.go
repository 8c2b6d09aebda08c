//go:build linux

package durability

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// strace is a tracer that makes system calls of a server fail.
type strace struct {
	cmd  *exec.Cmd
	log  string
	once sync.Once
}

// inject attaches a tracer. fault has the syntax of strace -e inject.
func inject(t *testing.T, s *testkit.Server, fault string, args ...string) *strace {
	t.Helper()
	calls, _, _ := strings.Cut(fault, ":")
	tracer := &strace{log: filepath.Join(t.TempDir(), "strace")}
	tracer.cmd = exec.Command("strace", append([]string{"-f", "-o", tracer.log, "-e", "signal=none",
		"-e", "trace=" + calls, "-e", "inject=" + fault, "-p", strconv.Itoa(s.Cmd.Process.Pid)}, args...)...)
	stderr, err := tracer.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.cmd.Start(); err != nil {
		testkit.Unavailable(t, "strace: %v", err)
	}
	t.Cleanup(tracer.stop)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "attached") {
			go func() { // It reports threads that start later.
				for lines.Scan() {
				}
			}()
			return tracer
		}
		t.Log(lines.Text())
	}
	testkit.Unavailable(t, "strace cannot attach to a process")
	return nil
}

// stop detaches the tracer.
func (s *strace) stop() {
	s.once.Do(func() {
		s.cmd.Process.Signal(syscall.SIGTERM)
		// It can wait forever for a process that is dead.
		late := time.AfterFunc(3*time.Second, func() { s.cmd.Process.Kill() })
		s.cmd.Wait()
		late.Stop()
	})
}

// calls are the system calls that the tracer has seen, and how many of them it made fail.
func (s *strace) calls(t *testing.T) (all []string, injected int) {
	t.Helper()
	return tracedCalls(t, s.log)
}

func tracedCalls(t *testing.T, log string) (all []string, injected int) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		injected += strings.Count(line, "(INJECTED)")
		// An interrupted call has a second line, and the end of a thread has no parenthesis.
		if strings.Contains(line, "(") && !strings.Contains(line, " resumed>") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all, injected
}
