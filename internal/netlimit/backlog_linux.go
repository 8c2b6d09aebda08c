package netlimit

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// backlog is the kernel's queue of connections that were not accepted yet. They are accepted here without waiting, and
// refused without the cost of a net.Conn. With 2,000 busy clients for 256 slots, a new client gets a response within
// 0.1 ms (median; 108 ms at most). Left in the queue, it gets none in 4 s, while the rate of creates is the same.
type backlog struct {
	listener  syscall.RawConn // nil if it has no file
	refusal   func() []byte
	max       int       // connections being refused at once
	refusing  []refusal // oldest first
	mu        *sync.Mutex
	scheduled bool // advance will be called
}

// refusal is a connection that is being refused. It stays open until the client has read the response: closing a
// socket that has unread bytes would reset the connection and discard the response.
type refusal struct {
	fd        int
	since     time.Time
	responded bool
	next      time.Time // when it is checked again
}

const (
	refusalDelay   = 20 * time.Millisecond // how long a refusal waits for the request
	refusalTimeout = 100 * time.Millisecond
	refusalCheck   = 10 * time.Millisecond // between checks of one that was sent
)

// newBacklog returns the backlog of l. Its methods are called with mu held.
func newBacklog(l net.Listener, response func() []byte, most int, mu *sync.Mutex) backlog {
	b := backlog{refusal: response, max: most, mu: mu}
	if file, ok := l.(syscall.Conn); ok {
		b.listener, _ = file.SyscallConn()
	}
	return b
}

// limitUnsent limits how many bytes the kernel buffers that can't be sent yet. 0 is the default of the system, which
// allows megabytes. The option is set on each connection, because connections do not inherit it from a listener where
// Go uses Multipath TCP.
func limitUnsent(c net.Conn, n int) {
	const tcpNotSentLowat = 25 // TCP_NOTSENT_LOWAT
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, n) })
	}
}

// canRefuse reports whether take has an effect.
func (b *backlog) canRefuse() bool { return b.listener != nil }

// take accepts connections and refuses those that admit does not open, up to limit of them. What a refused client sends
// is not parsed.
func (b *backlog) take(
	now time.Time, limit int, admit func(from netip.Addr, open func() (net.Conn, error)) bool,
) (refused int) {
	if !b.canRefuse() {
		return 0
	}
	b.advance(now)
	b.listener.Control(func(listening uintptr) {
		for taken := 0; taken < maxTaken && refused < limit && len(b.refusing) < b.max; taken++ {
			fd, from, err := syscall.Accept4(int(listening), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			if err != nil {
				return
			}
			if admit(addressOf(from), func() (net.Conn, error) { return fileConn(fd) }) {
				continue
			}
			refused++
			if r := (refusal{fd: fd, since: now}); r.advance(now, b.refusal) {
				b.refusing = append(b.refusing, r)
			}
		}
	})
	b.schedule()
	return refused
}

func addressOf(a syscall.Sockaddr) netip.Addr {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *syscall.SockaddrInet6:
		return netip.AddrFrom16(a.Addr)
	}
	return netip.Addr{}
}

// fileConn makes a net.Conn of a socket, as Accept does. It fails if the client has reset the connection: the net.Conn
// would have no remote address.
func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close() // the net.Conn has a duplicate
	c, err := net.FileConn(f)
	if err == nil && c.RemoteAddr() == nil {
		c.Close()
		return nil, syscall.ENOTCONN
	}
	return c, err
}

// advance continues all refusals.
func (b *backlog) advance(now time.Time) {
	open := b.refusing[:0]
	for _, r := range b.refusing {
		if r.advance(now, b.refusal) {
			open = append(open, r)
		}
	}
	b.refusing = open
}

// advance sends the response when a request has arrived, or none for a while. It closes the connection, and reports
// false, when the client has closed it or had enough time.
func (r *refusal) advance(now time.Time, response func() []byte) bool {
	if now.Before(r.next) {
		return true
	}
	var b [4096]byte
	n, err := syscall.Read(r.fd, b[:])
	received := n > 0
	for reads := 0; n == len(b) && reads < 16; reads++ {
		n, err = syscall.Read(r.fd, b[:])
	}
	open := n > 0 || err == syscall.EAGAIN
	if !r.responded && (received || open && now.Sub(r.since) > refusalDelay) {
		syscall.Write(r.fd, response()) // the buffer of a new socket takes all of it
		syscall.Shutdown(r.fd, syscall.SHUT_WR)
		r.responded = true
	}
	if r.responded {
		r.next = now.Add(refusalCheck)
	}
	if !open || now.Sub(r.since) > refusalTimeout {
		syscall.Close(r.fd)
		return false
	}
	return true
}

// schedule continues refusals while take is not called.
func (b *backlog) schedule() {
	if b.scheduled || len(b.refusing) == 0 {
		return
	}
	b.scheduled = true
	time.AfterFunc(refusalDelay, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.scheduled = false
		b.advance(time.Now())
		b.schedule()
	})
}

// peek reports whether the client has sent bytes that were not read yet, and whether the connection is closed.
func peek(c net.Conn) (unread, closed bool) {
	file, ok := c.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false, true
	}
	var (
		n    int
		info [4]byte
	)
	if controlErr := raw.Control(func(fd uintptr) {
		n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		info, _ = syscall.GetsockoptInet4Addr(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO) // its first 4 bytes
	}); controlErr != nil {
		return false, true
	}
	const closeWait = 8 // TCP_CLOSE_WAIT; with TLS, the bytes of an alert are unread then
	return n > 0, n == 0 || err != nil && err != syscall.EAGAIN || info[0] == closeWait
}

func isOutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
