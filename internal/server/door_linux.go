package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"plantstore/internal/httpapi"
)

// door is where connections are refused that there is no room for.
type door struct {
	mu        sync.Mutex
	looked    time.Time
	pace      int // connections that may be refused now
	told      time.Time
	refused   int // since it was told
	tidying   bool
	lingering []leaving // the oldest first
	most      int       // of those
}

// leaving is a connection that is refused, and is open until its client has read why: a close while
// something comes in would reset it, and take the answer away.
type leaving struct {
	fd       int
	since    time.Time
	answered bool
	next     time.Time // when it is looked at again
}

const (
	hearsFor  = 20 * time.Millisecond // how long the request is waited for before the answer
	leavesFor = 100 * time.Millisecond
	leaveGap  = 10 * time.Millisecond // between looks at one that is answered
)

const canRefuse = true

// answer accepts those who wait. Where there is no room they are told so, and closed when they have read
// it; nobody parses what they ask. It returns how many were refused, once a second.
func (d *door) answer(l *listener, now time.Time) (refused int) {
	if !d.mu.TryLock() {
		return 0
	}
	defer d.mu.Unlock()
	if now.Sub(d.looked) < lookGap {
		return 0
	}
	// What was not used of the pace since it was last looked is there now, up to a crowd.
	d.pace = int(min(int64(d.pace)+int64(now.Sub(d.looked)/refuseEvery), refuseAtOnce))
	d.looked = now
	d.part(now)
	control(l.Listener, func(listening int) {
		for ; d.pace > 0 && len(d.lingering) < d.most; d.pace-- {
			fd, _, err := syscall.Accept4(listening, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			if err != nil {
				return
			}
			if l.letIn(now, func() (net.Conn, error) { return connOn(fd) }) {
				continue
			}
			l.crowded.Store(now.UnixNano())
			d.refused++
			if c := (leaving{fd: fd, since: now}); c.goesOn(now) {
				d.lingering = append(d.lingering, c)
			}
		}
	})
	d.tidyLater()
	if now.Sub(d.told) < time.Second {
		return 0
	}
	refused, d.refused, d.told = d.refused, 0, now
	return refused
}

// connOn makes a connection of a file, as Accept does.
func connOn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "")
	defer f.Close() // the connection has its own
	return net.FileConn(f)
}

// part closes those that are gone, or have had their time.
func (d *door) part(now time.Time) {
	stay := d.lingering[:0]
	for _, c := range d.lingering {
		if c.goesOn(now) {
			stay = append(stay, c)
		}
	}
	d.lingering = stay
}

// goesOn answers when something was asked, or nothing for a while. It closes the connection, and reports
// false, when the client has.
func (c *leaving) goesOn(now time.Time) bool {
	if now.Before(c.next) {
		return true
	}
	var b [4096]byte
	n, err := syscall.Read(c.fd, b[:])
	heard := n > 0
	for reads := 0; n == len(b) && reads < 16; reads++ {
		n, err = syscall.Read(c.fd, b[:])
	}
	waits := n > 0 || err == syscall.EAGAIN || err == syscall.EINTR
	if !c.answered && (heard || waits && now.Sub(c.since) > hearsFor) {
		syscall.Write(c.fd, httpapi.Refusal()) // a new connection takes it whole
		syscall.Shutdown(c.fd, syscall.SHUT_WR)
		c.answered = true
	}
	if c.answered {
		c.next = now.Add(leaveGap)
	}
	if !waits || now.Sub(c.since) > leavesFor {
		syscall.Close(c.fd)
		return false
	}
	return true
}

// tidyLater sees to those that are leaving, also when nobody looks at the door any more.
func (d *door) tidyLater() {
	if d.tidying || len(d.lingering) == 0 {
		return
	}
	d.tidying = true
	time.AfterFunc(hearsFor, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.tidying = false
		d.part(time.Now())
		d.tidyLater()
	})
}

// silent reports whether a client has sent nothing that is not read yet.
func silent(c net.Conn) bool {
	unread := 0
	control(c, func(fd int) {
		unread, _, _ = syscall.Recvfrom(fd, make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return unread <= 0
}

// control lends the file of a listener or connection.
func control(of any, do func(fd int)) {
	if c, ok := of.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { do(int(fd)) })
		}
	}
}

func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
