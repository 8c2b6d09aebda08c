// Package systemd tells a service manager about the state of the process: see sd_notify(3).
package systemd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Manager is the service manager that has started the process. All methods of nil do nothing.
type Manager struct {
	socket   net.Conn
	watchdog time.Duration // the manager restarts a process that sends nothing for so long; 0: never
}

// Connect returns the manager that the environment names, or nil if there is none.
func Connect(getenv func(string) string) (*Manager, error) {
	name := getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil, nil
	}
	socket, err := net.Dial("unixgram", name) // @ starts an abstract name
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET is %q: %w", name, err)
	}
	m := &Manager{socket: socket}
	if pid := getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		µs, _ := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
		m.watchdog = time.Duration(µs) * time.Microsecond
	}
	return m, nil
}

// Ready reports that the start is complete.
func (m *Manager) Ready(status string) { m.send("READY=1\nSTATUS=" + status) }

// Stopping reports that the process is going to end.
func (m *Manager) Stopping(status string) { m.send("STOPPING=1\nSTATUS=" + status) }

// send ignores errors: the manager has ended then.
func (m *Manager) send(state string) {
	if m != nil {
		m.socket.Write([]byte(state))
	}
}

// Watchdog reports that the process is alive, at least at every half of the interval, until ctx ends, as long as a GET
// of a URL returns 200. If url is empty, only the Go runtime must be alive.
func (m *Manager) Watchdog(ctx context.Context, url string) {
	if m == nil || m.watchdog <= 0 {
		return
	}
	client := &http.Client{Timeout: m.watchdog / 4, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		if isAlive(client, url) {
			m.send("WATCHDOG=1")
		}
		select {
		case <-time.After(m.watchdog / 4):
		case <-ctx.Done():
			return
		}
	}
}

func isAlive(client *http.Client, url string) bool {
	if url == "" {
		return true
	}
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}
