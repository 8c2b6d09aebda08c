package systemd

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstInherited is the descriptor of the first inherited socket.
const firstInherited = 3

// Inherit returns the listening sockets that systemd passed to the process: that of the service and that of health,
// nil for each that was not passed. Such a socket outlives the process: a connection that arrives between one process
// and the next waits in it instead of being refused.
//
// LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES describe the sockets. The one named ops is that of health; without names
// the first is that of the service. Inherit removes the variables, which are meant for this process only.
func Inherit(getenv func(string) string) (public, ops net.Listener, err error) {
	count, names := getenv("LISTEN_FDS"), getenv("LISTEN_FDNAMES")
	mine := getenv("LISTEN_PID") == strconv.Itoa(os.Getpid())
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if count == "" || !mine {
		return nil, nil, nil
	}
	return inherit(count, names, inheritedListener)
}

func inherit(count, names string, open func(fd int) (net.Listener, error)) (public, ops net.Listener, err error) {
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > 2 {
		return nil, nil, fmt.Errorf("LISTEN_FDS is %q: it must be 1 or 2, for the service and for health", count)
	}
	nameOf := strings.Split(names, ":")
	for i := range n {
		l, err := open(firstInherited + i)
		if err != nil {
			return nil, nil, err
		}
		isOps := public != nil
		if i < len(nameOf) && (nameOf[i] == "ops" || nameOf[i] == "http") {
			isOps = nameOf[i] == "ops"
		}
		to := &public
		if isOps {
			to = &ops
		}
		if *to != nil {
			return nil, nil, fmt.Errorf("LISTEN_FDNAMES is %q: it must name http and ops once each", names)
		}
		*to = l
	}
	return public, ops, nil
}

func inheritedListener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), fmt.Sprintf("inherited socket %d", fd))
	if f == nil {
		return nil, fmt.Errorf("descriptor %d of LISTEN_FDS is not open", fd)
	}
	defer f.Close() // the listener has a duplicate
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d of LISTEN_FDS is not a TCP listener: %w", fd, err)
	}
	if _, ok := l.(*net.TCPListener); !ok {
		l.Close()
		return nil, fmt.Errorf("descriptor %d of LISTEN_FDS is not a TCP listener: it listens on %s", fd, l.Addr().Network())
	}
	return l, nil
}
