//go:build !linux

package netlimit

import (
	"net"
	"sync"
	"time"
)

// backlog leaves connections that are not admitted to the kernel, where they wait.
type backlog struct{}

func newBacklog(net.Listener, func() []byte, int, *sync.Mutex) backlog { return backlog{} }

func (*backlog) canRefuse() bool { return false }

func (*backlog) take(time.Time, int, func(open func() (net.Conn, error)) bool) (admitted, refused int) {
	return 0, 0
}

// peek is not supported here.
func peek(net.Conn) (unread, closed bool) { return false, false }

func isOutOfFiles(error) bool { return false }
