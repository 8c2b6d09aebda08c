package server

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstPassed is the descriptor of the first socket that is passed on.
const firstPassed = 3

// Inherit returns the listeners that the process was started with, as systemd passes sockets on: that of the
// service and that of health, each nil where there is none. Such a socket outlives the process: a
// connection that comes between one process and the next waits in it and is not refused.
//
// LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES tell of them. The name ops is health's; without names the
// first is the service's. The variables are taken away, since they are for this process alone.
func Inherit(getenv func(string) string) (public, ops net.Listener, err error) {
	count, names := getenv("LISTEN_FDS"), strings.Split(getenv("LISTEN_FDNAMES"), ":")
	mine := getenv("LISTEN_PID") == strconv.Itoa(os.Getpid())
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if count == "" || !mine {
		return nil, nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > 2 {
		return nil, nil, fmt.Errorf("LISTEN_FDS is %q: expected 1 or 2 sockets, for the service and for health", count)
	}
	for i := range n {
		l, err := passedOn(firstPassed + i)
		if err != nil {
			return nil, nil, err
		}
		isOps := public != nil
		if i < len(names) && (names[i] == "ops" || names[i] == "http") {
			isOps = names[i] == "ops"
		}
		to := &public
		if isOps {
			to = &ops
		}
		if *to != nil {
			return nil, nil, fmt.Errorf("LISTEN_FDNAMES is %q: expected http and ops, each once", strings.Join(names, ":"))
		}
		*to = l
	}
	return public, ops, nil
}

func passedOn(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), fmt.Sprintf("passed socket %d", fd))
	if f == nil {
		return nil, fmt.Errorf("the descriptor %d that LISTEN_FDS passes on is not open", fd)
	}
	defer f.Close() // the listener has its own
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the descriptor %d that LISTEN_FDS passes on is not a TCP listener: %w", fd, err)
	}
	if _, ok := l.(*net.TCPListener); !ok {
		l.Close()
		return nil, fmt.Errorf("the descriptor %d that LISTEN_FDS passes on is not a TCP listener but listens on %s", fd, l.Addr().Network())
	}
	return l, nil
}
