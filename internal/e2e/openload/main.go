//go:build linux

// Command openload sends creates by the clock, whether or not those before were answered, as many clients that
// know nothing of each other do. It is a process of its own, so that what it costs is not the server's.
//
// Every arrival takes a client that is free. Where none is, it can't be sent, which is counted. A client that was
// refused rests for the time that Retry-After gives, and up to as long again, unless it is stubborn. A connection that the kernel does not make within a second is counted as well. Times run from
// the moment of the arrival.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Report is what came of the load.
type Report struct {
	Arrivals, Sent       int
	OK, Refused          int
	Unsent               int // arrivals that found no client free
	Unconnected          int // connections that were not made within a second
	Broken               int // requests that were sent and got no answer
	Wrong                int // answers that are neither 200 nor a 503 as it should be
	Late                 int // requests that had no answer at the end
	Reason               string
	Seconds              float64
	OK50, OK99, OKMax    time.Duration
	Refused50, Refused99 time.Duration
	RefusedMax           time.Duration
	Refusals             []time.Duration // how long each took
	Accepted             int             // connections on which something was answered 200
	Server               float64         // seconds of the server on the processor
	atEnd                int
	okTimes              []time.Duration
}

type state uint8

const (
	unconnected state = iota
	connecting
	idle
	waiting
)

type client struct {
	state   state
	fd      int
	good    bool // something was answered 200 on this connection
	arrival time.Time
	since   time.Time // it was not yet idle then
	answer  []byte
}

// rest is a client that was told to come again later.
type rest struct {
	client int
	until  time.Time
}

type load struct {
	Report
	to              syscall.SockaddrInet4
	request         []byte
	idAt            int
	id              int
	epoll           int
	clients         []client
	free            []int // clients without a request, those with a connection last
	resting         []rest
	stubborn, turns bool
	once            bool      // a connection for each request
	dialing         []int     // in the order in which they began
	closed          bool      // not by the clock: each client sends again when it is answered
	looked          time.Time // every answer that was there before is taken
	ending          bool
}

const (
	digits   = "000000000000000"
	patience = time.Second
	stale    = 500 * time.Millisecond // the server may end a connection that was idle for twice as long
)

func main() {
	address := flag.String("address", "", "of the server")
	token := flag.String("token", "", "to send")
	rate := flag.Float64("rate", 0, "arrivals per second; 0: each client sends again when it is answered")
	clients := flag.Int("clients", 64, "connections at once at most")
	lasts := flag.Duration("for", time.Second, "how long")
	warm := flag.Duration("warm", 0, "how long before anything is counted")
	pid := flag.Int("pid", 0, "of the server, whose time on the processor is measured")
	turns := flag.Bool("turns", false, "let clients take turns, so that all of them are connected soon")
	stubborn := flag.Bool("stubborn", false, "come again at once after a refusal")
	urgent := flag.Bool("urgent", false, "look for answers all the time")
	once := flag.Bool("once", false, "make a connection for each request")
	first := flag.Int("first", 1, "id of the first plant")
	flag.Parse()
	if err := run(*address, *token, *rate, *clients, *lasts, *first, *stubborn, *turns, *once, *urgent, *warm, *pid); err != nil {
		fmt.Fprintln(os.Stderr, "openload:", err)
		os.Exit(1)
	}
}

func run(address, token string, rate float64, clients int, lasts time.Duration, first int, stubborn, turns, once, urgent bool, warm time.Duration, pid int) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	body := `{"id":` + digits + `,"name":"Monstera deliciosa","tag":"climber"}`
	head := fmt.Sprintf("POST /plants HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", address, token, len(body))
	l := &load{
		to: syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}, request: []byte(head + body), idAt: len(head) + len(`{"id":`),
		id: first + 100_000_000_000_000, clients: make([]client, clients), closed: rate == 0, stubborn: stubborn, turns: turns, once: once,
	}
	if l.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for i := range clients {
		l.free = append(l.free, i)
	}
	begin := time.Now()
	counted := begin.Add(warm)
	end := counted.Add(lasts)
	used := -1.0
	events := make([]syscall.EpollEvent, 512)
	l.looked = begin
	for now := begin; ; now = time.Now() {
		if used < 0 && !now.Before(counted) {
			used, counted = processor(pid), now
			l.Report = Report{Arrivals: l.Arrivals}
		}
		if !now.Before(end) && !l.ending {
			l.ending = true
			l.Seconds = now.Sub(counted).Seconds()
			l.Server = processor(pid) - used
			l.atEnd = l.OK
			end = now.Add(5 * time.Second) // for the last answers
		}
		if l.ending && (len(l.free)+len(l.resting) == len(l.clients) || !now.Before(end)) {
			break
		}
		if !l.ending {
			l.arrive(begin, now, rate)
		}
		l.giveUp(now)
		l.wake(now)
		wait := 1
		if l.ending {
			wait = 10
		}
		if !l.closed && !urgent {
			// Answers are taken together, so that little is taken from the server: processors may share a core.
			time.Sleep(time.Millisecond)
		}
		asked := time.Now()
		n, err := syscall.EpollWait(l.epoll, events, wait)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		now = time.Now()
		for _, e := range events[:max(n, 0)] {
			l.event(int(e.Fd), now)
		}
		if n >= 0 && n < len(events) { // else there is more
			l.looked = asked
		}
	}
	l.Late = len(l.clients) - len(l.free) - len(l.resting)
	l.OK50, l.OK99, l.OKMax = quantiles(l.okTimes)
	l.Refused50, l.Refused99, l.RefusedMax = quantiles(l.Refusals)
	l.OK = l.atEnd
	return json.NewEncoder(os.Stdout).Encode(l.Report)
}

// arrive lets everybody in whose time has come.
func (l *load) arrive(begin, now time.Time, rate float64) {
	due := l.Arrivals + len(l.free)
	if !l.closed {
		due = int(now.Sub(begin).Seconds() * rate)
	}
	for ; l.Arrivals < due; l.Arrivals++ {
		if len(l.free) == 0 {
			l.Unsent += due - l.Arrivals
			l.Arrivals = due
			return
		}
		at := now
		if !l.closed {
			at = begin.Add(time.Duration(float64(l.Arrivals+1) / rate * 1e9))
		}
		place := len(l.free) - 1
		if l.turns {
			place = 0
		}
		i := l.free[place]
		l.free = slices.Delete(l.free, place, place+1)
		c := &l.clients[i]
		c.arrival = at
		if c.state == idle && time.Since(c.since) > stale {
			// This process stood still, or has little to do. The server may be ending this connection just now, which is
			// its right, and only what is sent on a fresh one must be answered.
			l.close(i)
		}
		if c.state == idle {
			l.send(i)
		} else {
			l.dial(i, now)
		}
	}
}

func (l *load) dial(i int, now time.Time) {
	c := &l.clients[i]
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		l.fail(&l.Broken, i, err.Error())
		return
	}
	c.fd, c.state, c.good, c.answer = fd, connecting, false, c.answer[:0]
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	if err := syscall.Connect(fd, &l.to); err != nil && !errors.Is(err, syscall.EINPROGRESS) {
		l.fail(&l.Unconnected, i, err.Error())
		return
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLOUT | 1<<31, Fd: int32(i)} // edges only
	if err := syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
		l.fail(&l.Broken, i, err.Error())
		return
	}
	l.dialing = append(l.dialing, i)
}

// giveUp ends connections that were not made in time.
func (l *load) giveUp(now time.Time) {
	for len(l.dialing) > 0 {
		i := l.dialing[0]
		if c := &l.clients[i]; c.state == connecting {
			if now.Sub(c.arrival) < patience {
				return
			}
			l.fail(&l.Unconnected, i, "")
		}
		l.dialing = l.dialing[1:]
	}
}

func (l *load) send(i int) {
	c := &l.clients[i]
	strconv.AppendInt(l.request[:l.idAt], int64(l.id), 10)
	l.id++
	c.state = waiting
	if _, err := syscall.Write(c.fd, l.request); err != nil {
		l.fail(&l.Broken, i, "send: "+err.Error())
		return
	}
	l.Sent++
}

func (l *load) event(i int, now time.Time) {
	c := &l.clients[i]
	if c.state == connecting {
		if e, err := syscall.GetsockoptInt(c.fd, syscall.SOL_SOCKET, syscall.SO_ERROR); err != nil || e != 0 {
			l.fail(&l.Unconnected, i, "connect: "+syscall.Errno(e).Error())
			return
		}
		l.send(i)
	}
	var b [4096]byte
	for c.state == waiting || c.state == idle {
		n, err := syscall.Read(c.fd, b[:])
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
			return
		}
		if err != nil || n == 0 {
			if c.state == idle { // the server may end a connection that nothing is asked on
				l.close(i)
				return
			}
			l.fail(&l.Broken, i, fmt.Sprintf("no answer: %d %v", n, err))
			return
		}
		c.answer = append(c.answer, b[:n]...)
		if complete(c.answer) {
			l.answered(i, now)
		}
	}
}

func complete(b []byte) bool {
	head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return false
	}
	_, length, _ := bytes.Cut(head, []byte("Content-Length: "))
	length, _, _ = bytes.Cut(length, []byte("\r\n"))
	n, err := strconv.Atoi(string(length))
	return err == nil && len(body) >= n
}

func (l *load) answered(i int, now time.Time) {
	c := &l.clients[i]
	took := now.Sub(c.arrival)
	answer := string(c.answer)
	c.answer = c.answer[:0]
	switch {
	case strings.HasPrefix(answer, "HTTP/1.1 200 "):
		l.OK++
		l.okTimes = append(l.okTimes, took)
		if !c.good {
			c.good = true
			l.Accepted++
		}
	case strings.HasPrefix(answer, "HTTP/1.1 503 ") && strings.Contains(answer, "\r\nRetry-After: 1\r\n") && strings.Contains(answer, `{"error":50301,`):
		l.Refused++
		l.Refusals = append(l.Refusals, took)
	default:
		l.fail(&l.Wrong, i, answer)
		return
	}
	c.state, c.since = idle, l.looked
	if l.once || strings.Contains(answer, "\r\nConnection: close\r\n") {
		syscall.Close(c.fd)
		c.state = unconnected
		if !l.stubborn && answer[len("HTTP/1.1 ")] == '5' {
			l.resting = append(l.resting, rest{i, now.Add(time.Second + rand.N(time.Second))})
			return
		}
		l.free = slices.Insert(l.free, 0, i) // whoever has a connection goes first
		return
	}
	l.free = append(l.free, i)
}

func (l *load) wake(now time.Time) {
	l.resting = slices.DeleteFunc(l.resting, func(r rest) bool {
		if now.Before(r.until) {
			return false
		}
		l.free = slices.Insert(l.free, 0, r.client)
		return true
	})
}

func (l *load) fail(count *int, i int, reason string) {
	*count++
	if reason != "" && l.Reason == "" {
		l.Reason = reason
	}
	syscall.Close(l.clients[i].fd)
	l.clients[i].state = unconnected
	l.clients[i].answer = l.clients[i].answer[:0]
	l.free = slices.Insert(l.free, 0, i)
}

// close forgets a connection that the server has ended; its client stays free.
func (l *load) close(i int) {
	syscall.Close(l.clients[i].fd)
	l.clients[i].state = unconnected
}

// processor is how long a process has been on a processor, in seconds.
func processor(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / 100
}

func quantiles(d []time.Duration) (p50, p99, most time.Duration) {
	if len(d) == 0 {
		return 0, 0, 0
	}
	slices.Sort(d)
	return d[len(d)/2], d[len(d)*99/100], d[len(d)-1]
}
