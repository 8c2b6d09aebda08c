//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

const (
	connectTimeout = time.Second
	lastTimeout    = 15 * time.Second // for responses after the window
	maxKept        = 4 << 10          // bytes of a response that are kept; the head must fit
)

type phase int

const (
	warming phase = iota
	measuring
	ending
)

type driver struct {
	options
	report  measure.Report
	times   measure.Histogram
	to      syscall.SockaddrInet4
	creates *operation
	others  *operation // nil if there are only creates
	random  *rand.Rand
	created int64 // creates sent
	edited  int64 // edits sent
	epoll   int
	buffer  []byte

	clients []client
	free    []int // clients without a request
	dialing []int // in the order in which they started to connect

	phase  phase
	begin  time.Time      // of the window
	before []measure.Used // at its start
	cpu    time.Duration  // of this process at its start
	busy   time.Duration  // of the machine at its start
	stolen time.Duration  // likewise
}

func run(o options) (measure.Report, error) {
	d := &driver{options: o, report: measure.Report{First: o.first}, buffer: make([]byte, 64<<10), creates: creates(o)}
	d.random = rand.New(rand.NewPCG(uint64(o.first), 1))
	var err error
	if d.others, err = others(o); err != nil {
		return d.report, err
	}
	to, err := netip.ParseAddrPort(o.address)
	if err != nil {
		return d.report, err
	}
	d.to = syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	if d.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return d.report, err
	}
	d.clients = make([]client, o.clients+o.creators)
	for i := range d.clients {
		d.free = append(d.free, i)
		d.clients[i] = client{fd: -1, response: make([]byte, 0, maxKept), creator: i >= o.clients}
	}
	err = d.drive()
	return d.report, err
}

// next chooses the next request of a client.
func (d *driver) next(c *client) {
	switch {
	case d.others == nil || c.creator || d.createShare > 0 && d.random.Float64() < d.createShare:
		c.op, c.id = d.creates, measure.ID(d.first+d.created, d.scattered)
	case d.method == http.MethodGet:
		c.op, c.id = d.others, d.storedID(d.random.Int64N(d.stored))
	default:
		c.op, c.id = d.others, d.storedID(d.first+d.edited)
	}
}

// storedID returns the id of a stored plant.
func (o *options) storedID(i int64) int64 {
	if o.spread > 0 {
		return measure.SpreadID(i, o.spread)
	}
	return measure.ID(i, false)
}

// exhausted reports whether every stored plant was edited. The window ends then.
func (d *driver) exhausted() bool { return d.edited > 0 && d.first+d.edited >= d.stored }

// drive sends until the window is over and then waits for the last responses.
func (d *driver) drive() error {
	start := time.Now()
	end := start.Add(d.warm) // of the phase
	events := make([]syscall.EpollEvent, 512)
	for now := start; ; now = time.Now() {
		inFlight := len(d.clients) - len(d.free)
		switch {
		case d.phase == ending && inFlight == 0:
			return nil
		case now.Before(end) && (d.phase == ending || !d.exhausted()):
		case d.phase == warming:
			d.startWindow()
			end = d.begin.Add(d.window)
		case d.phase == measuring:
			d.endWindow()
			end = now.Add(lastTimeout)
		default:
			d.count(&d.report.Late, inFlight, fmt.Sprintf("no response within %v", lastTimeout))
			return nil
		}
		if d.phase != ending && !d.exhausted() {
			d.start()
		}
		d.abandon(now)
		if err := d.receive(events, end); err != nil {
			return err
		}
	}
}

// receive waits for responses and handles them.
func (d *driver) receive(events []syscall.EpollEvent, end time.Time) error {
	timeout := 1 // ms
	if len(d.free)+len(d.dialing) == 0 {
		timeout += max(0, int(time.Until(end)/time.Millisecond))
	}
	n, err := syscall.EpollWait(d.epoll, events, timeout)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		return fmt.Errorf("epoll: %w", err)
	}
	for _, e := range events[:max(n, 0)] {
		d.event(int(e.Fd))
	}
	return nil
}

func (d *driver) startWindow() {
	r := &d.report
	*r = measure.Report{
		First: r.First, Sent: r.Sent, OK: r.OK, Created: r.Created, Bad: r.Bad, Reason: r.Reason,
	}
	d.before = d.usage()
	d.cpu = ownCPU()
	d.busy, d.stolen = measure.Busy()
	d.phase, d.begin = measuring, time.Now()
}

// endWindow writes the figures of the window into the report.
func (d *driver) endWindow() {
	d.phase = ending
	r := &d.report
	r.Seconds = time.Since(d.begin).Seconds()
	r.Count = d.times.Count()
	r.P50, r.P99, r.P999 = d.times.Quantile(0.5), d.times.Quantile(0.99), d.times.Quantile(0.999)
	r.Max = d.times.Max()
	for _, c := range d.clients { // a request that takes long is most likely to be in flight at the end
		if c.state == waiting && !c.creator {
			r.Max = max(r.Max, time.Since(c.arrival))
		}
	}
	busy, stolen := measure.Busy()
	own, others := ownCPU()-d.cpu, busy-d.busy
	r.LoadCPU = own / time.Duration(max(1, r.Count+r.Beside))
	for i, after := range d.usage() {
		after.CPU -= d.before[i].CPU
		after.Bytes -= d.before[i].Bytes
		r.Server = append(r.Server, after)
		others -= after.CPU
	}
	r.Others = max(0, (others-own).Seconds()/r.Seconds)
	r.Stolen = (stolen - d.stolen).Seconds() / r.Seconds
}

func (d *driver) usage() []measure.Used {
	all := make([]measure.Used, len(d.pids))
	for i, pid := range d.pids {
		used, err := measure.Usage(pid)
		if err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
		}
		all[i] = used
	}
	return all
}

func ownCPU() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// count adds failures to one of the report's counters and keeps the first reason.
func (d *driver) count(counter *int, n int, reason string) {
	*counter += n
	d.report.Bad += int64(n)
	if d.report.Reason == "" {
		d.report.Reason = reason
	}
}
