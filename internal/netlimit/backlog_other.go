//go:build !linux

package netlimit

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// backlog leaves connections that are not admitted to the kernel, where they wait.
type backlog struct{}

func newBacklog(net.Listener, func() []byte, int, *sync.Mutex) backlog { return backlog{} }

func (*backlog) canRefuse() bool { return false }

func (*backlog) take(time.Time, int, func(from netip.Addr, open func() (net.Conn, error)) bool) (refused int) {
	return 0
}

// limitUnsent is not supported here.
func limitUnsent(net.Conn, int) {}

// peek is not supported here.
func peek(net.Conn) (unread, closed bool) { return false, false }

func isOutOfFiles(error) bool { return false }
