package testkit

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Connections counts those that the process has with clients.
func (p *Server) Connections(t *testing.T) (n int) {
	t.Helper()
	return len(Sockets(t, p.URL[strings.LastIndexByte(p.URL, ':')+1:]))
}

// Sockets is what the system knows of each connection to a port, at the server's end, in the fields of /proc/net/tcp.
func Sockets(t *testing.T, port string) (all [][]string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && f[3] == "01" {
			all = append(all, f)
		}
	}
	return all
}

// Memory is a number of bytes in /proc/PID/status.
func (p *Server) Memory(t *testing.T, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
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
