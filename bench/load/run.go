package main

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

const (
	zeros    = "0000000000000000" // stands in the request where the id goes
	patience = 15 * time.Second   // for the last answers
	sendSize = 256 << 10          // a socket takes a whole request at once
)

type phase int

const (
	warming phase = iota
	measuring
	ending
)

type conn struct {
	fd      int
	request []byte
	answer  []byte // until its head is complete
	rest    int    // bytes of the answer still to come, once its head is read
	status  int    // 0 until then
	sent    time.Time
}

type driver struct {
	options
	report measure.Report
	times  measure.Histogram
	conns  []*conn
	idAt   int // where the id stands in a request
	active int // requests under way
	phase  phase
	begin  time.Time      // of the window
	before []measure.Used // at its begin
	cpu    time.Duration  // of this process, at its begin
	busy   time.Duration  // of the machine, at its begin
	spare  []byte
}

func run(o options) (measure.Report, error) {
	d := &driver{options: o, report: measure.Report{First: o.first}, spare: make([]byte, 64<<10)}
	request, at := template(o)
	d.idAt = at
	to, err := netip.ParseAddrPort(o.address)
	if err != nil {
		return d.report, err
	}
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return d.report, err
	}
	for i := range o.conns {
		fd, err := dial(to)
		if err != nil {
			return d.report, fmt.Errorf("connection %d: %w", i+1, err)
		}
		d.conns = append(d.conns, &conn{fd: fd, request: append([]byte(nil), request...), answer: make([]byte, 0, 4096)})
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}
		if err := syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
			return d.report, err
		}
	}
	err = d.drive(epoll)
	return d.report, err
}

// template is a whole request and where its id stands.
func template(o options) ([]byte, int) {
	body := fmt.Sprintf(`{"%s":%s,"name":"%s","tag":"%s"}`, o.idName, zeros, o.name, measure.Tag)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		o.path, o.address, o.token, len(body))
	return []byte(head + body), len(head) + len(o.idName) + len(`{"":`)
}

func dial(to netip.AddrPort) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return 0, err
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return 0, err
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, sendSize); err != nil {
		return 0, err
	}
	return fd, syscall.SetNonblock(fd, true)
}
