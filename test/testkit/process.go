package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Health requests a path such as /readyz from the ops listener.
func (s *Server) Health(t testing.TB, path string) (status int, body string) {
	t.Helper()
	response, err := HTTP.Get(s.Ops + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// WaitReady waits until /readyz reports that the server is ready, or that it is not, and returns the body.
func (s *Server) WaitReady(t testing.TB, want bool) (body string) {
	t.Helper()
	WaitFor(t, fmt.Sprintf("/readyz to report ready: %v", want), func() bool {
		var status int
		status, body = s.Health(t, "/readyz")
		return (status == 200) == want
	})
	return body
}

// WaitLogged waits for a text in the log.
func (s *Server) WaitLogged(t testing.TB, text string) {
	t.Helper()
	WaitFor(t, text+" in the log", func() bool { return strings.Contains(s.Stderr.String(), text) })
}

// LoggedAt is the time of the first log record with a message, or the zero time if there is none.
func (s *Server) LoggedAt(message string) time.Time {
	for line := range strings.Lines(s.Stderr.String()) {
		var record struct {
			Time time.Time
			Msg  string
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Msg == message {
			return record.Time
		}
	}
	return time.Time{}
}

// Memory is a value of /proc/PID/status in bytes, such as VmRSS.
func (s *Server) Memory(t testing.TB, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(s.proc("status"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("no %s in %s", name, text)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return n << 10
}

// OpenFiles is the number of open file descriptors.
func (s *Server) OpenFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir(s.proc("fd"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func (s *Server) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(s.Cmd.Process.Pid), name)
}

// ThreadStates has one letter of /proc/PID/task/*/stat for each thread, such as D for one that waits for a disk.
func (s *Server) ThreadStates() (states string) {
	threads, _ := filepath.Glob(s.proc("task/*/stat"))
	for _, path := range threads {
		if text, err := os.ReadFile(path); err == nil {
			states += string(text[bytes.LastIndexByte(text, ')')+2])
		}
	}
	return states
}

// Freeze stops every thread, as a power cut stops the processor together with the disk. A process that still runs could
// see a sync succeed that the cut made ineffective.
func (s *Server) Freeze() {
	s.t.Helper()
	s.Signal(syscall.SIGSTOP)
	// A thread that waits for the disk stops before it continues.
	WaitFor(s.t, "the process to stop", func() bool { return strings.Trim(s.ThreadStates(), "TDZX") == "" })
}

// Connections is the number of established connections to the API.
func (s *Server) Connections(t testing.TB) int {
	t.Helper()
	return len(s.Sockets(t))
}

// Sockets has the fields of /proc/net/tcp for each established connection to the API, at the server's end.
func (s *Server) Sockets(t testing.TB) (all [][]string) {
	t.Helper()
	port, err := strconv.Atoi(s.URL[strings.LastIndexByte(s.URL, ':')+1:])
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const established = "01"
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == established {
			all = append(all, f)
		}
	}
	return all
}
