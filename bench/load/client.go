//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

type state uint8

const (
	unconnected state = iota
	connecting
	idle
	waiting // for a response
)

type client struct {
	state   state
	fd      int
	arrival time.Time
	creator bool // it creates beside the measured clients

	op *operation // of the last request
	id int64      // of its plant

	response []byte // the first bytes, up to maxKept
	chunks   chunks // of a body in chunks
	received int    // bytes
	head            // its status is 0 until it is complete
}

// start sends from every client without a request in flight.
func (d *driver) start() {
	for range len(d.free) {
		i := d.free[0]
		d.free = d.free[1:]
		d.clients[i].arrival = time.Now()
		if d.clients[i].state == idle {
			d.send(i)
		} else {
			d.dial(i)
		}
	}
}

func (d *driver) dial(i int) {
	c := &d.clients[i]
	kind := syscall.SOCK_STREAM | syscall.SOCK_CLOEXEC | syscall.SOCK_NONBLOCK
	fd, err := syscall.Socket(syscall.AF_INET, kind, 0)
	if err != nil {
		d.fail(&d.report.Broken, i, err.Error())
		return
	}
	c.fd, c.state = fd, connecting
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	if len(d.creates.request.text) > 16<<10 { // the socket must accept a whole request at once
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 256<<10)
	}
	if err := syscall.Connect(fd, &d.to); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		d.fail(&d.report.Unconnected, i, err.Error())
		return
	}
	const edgeTriggered = 1 << 31
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLOUT | edgeTriggered, Fd: int32(i)}
	if err := syscall.EpollCtl(d.epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
		d.fail(&d.report.Broken, i, err.Error())
		return
	}
	d.dialing = append(d.dialing, i)
}

// abandon closes sockets that did not connect in time.
func (d *driver) abandon(now time.Time) {
	for len(d.dialing) > 0 {
		i := d.dialing[0]
		if c := &d.clients[i]; c.state == connecting {
			if now.Sub(c.arrival) < connectTimeout {
				return
			}
			d.fail(&d.report.Unconnected, i, "not connected in time")
		}
		d.dialing = d.dialing[1:]
	}
}

func (d *driver) send(i int) {
	c := &d.clients[i]
	d.next(c)
	c.op.request.set(c.id)
	text := c.op.request.text
	c.state = waiting
	n, err := syscall.Write(c.fd, text)
	if err != nil || n != len(text) {
		d.fail(&d.report.Broken, i, fmt.Sprintf("sent %d of %d bytes: %v", n, len(text), err))
		return
	}
	d.report.Sent++
	switch {
	case c.op == d.creates:
		d.created++
	case d.method != http.MethodGet:
		d.edited++
	}
}

// event reads what has arrived. A client that has its response sends again at once.
func (d *driver) event(i int) {
	c := &d.clients[i]
	if c.state == connecting {
		if e, err := syscall.GetsockoptInt(c.fd, syscall.SOL_SOCKET, syscall.SO_ERROR); err != nil || e != 0 {
			d.fail(&d.report.Unconnected, i, "connect: "+syscall.Errno(e).Error())
			return
		}
		d.send(i)
	}
	for c.state == waiting || c.state == idle {
		n, err := syscall.Read(c.fd, d.buffer)
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
			return
		}
		if err != nil || n == 0 {
			if c.state == idle { // the server may close a connection without a request
				d.close(i)
				return
			}
			d.fail(&d.report.Broken, i, fmt.Sprintf("no response: read %d bytes, %v", n, err))
			return
		}
		if complete, err := c.read(d.buffer[:n]); err != nil {
			d.fail(&d.report.Wrong, i, err.Error())
		} else if complete && d.responded(i) {
			return
		}
	}
}

// read adds received bytes and reports whether they complete the response.
func (c *client) read(b []byte) (bool, error) {
	c.received += len(b)
	c.response = append(c.response, b[:min(len(b), maxKept-len(c.response))]...)
	if c.status == 0 {
		h, complete, err := parseHead(c.response)
		switch {
		case err != nil:
			return false, err
		case !complete && len(c.response) == maxKept:
			return false, fmt.Errorf("a head of more than %d bytes", maxKept)
		case !complete:
			return false, nil
		}
		c.head = h
	}
	if c.body == chunked {
		complete, err := c.chunks.read(b[max(0, len(b)-(c.received-c.size)):])
		if complete {
			c.body = c.chunks.body
		}
		return complete, err
	}
	if c.received > c.size+c.body {
		return false, errTooMany
	}
	return c.received == c.size+c.body, nil
}

// responded evaluates a complete response. It reports whether the next request was sent.
func (d *driver) responded(i int) bool {
	c := &d.clients[i]
	now := time.Now()
	if c.status != c.op.status {
		d.fail(&d.report.Wrong, i, string(c.response))
		return false
	}
	if problem := c.op.problem(c); problem != "" {
		d.fail(&d.report.Wrong, i, problem)
		return false
	}
	d.completed(c, now)
	closes := bytes.Contains(c.response, []byte("\r\nConnection: close\r\n"))
	c.reset()
	c.state = idle
	if closes {
		d.close(i)
	}
	if closes || d.phase == ending || d.exhausted() {
		d.free = append(d.free, i)
		return false
	}
	c.arrival = now
	d.send(i)
	return true
}

// completed counts a response that is as it must be.
func (d *driver) completed(c *client, now time.Time) {
	d.report.OK++
	if c.op == d.creates {
		d.report.Created++
	}
	switch {
	case d.phase != measuring:
	case c.creator:
		d.report.Beside++
	default:
		d.times.Record(now.Sub(c.arrival))
		d.report.Body += int64(c.body)
	}
}

// fail counts a request that did not get its response and closes the connection.
func (d *driver) fail(counter *int, i int, reason string) {
	d.count(counter, 1, reason)
	d.close(i)
	d.free = append(d.free, i)
}

func (d *driver) close(i int) {
	c := &d.clients[i]
	syscall.Close(c.fd)
	c.fd, c.state = -1, unconnected
	c.reset()
}

// reset prepares a client for the next response.
func (c *client) reset() {
	c.response, c.chunks, c.received, c.head = c.response[:0], chunks{}, 0, head{}
}
