package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"plantstore/bench/measure"
)

// drive sends on every connection, and again on each that was answered, until the window is over;
// then it waits for the last answers.
func (d *driver) drive(epoll int) error {
	for _, c := range d.conns {
		if err := d.send(c); err != nil {
			return err
		}
	}
	events := make([]syscall.EpollEvent, 256)
	turn := time.Now().Add(d.warm) // when the phase ends
	for d.active > 0 {
		n, err := syscall.EpollWait(epoll, events, max(0, int(time.Until(turn)/time.Millisecond))+1)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		for _, event := range events[:max(n, 0)] {
			if err := d.receive(d.conns[event.Fd]); err != nil {
				return err
			}
		}
		if time.Now().Before(turn) {
			continue
		}
		switch d.phase {
		case warming:
			d.before = d.usage()
			d.cpu, d.busy = ownCPU(), measure.Busy()
			d.phase, d.begin = measuring, time.Now()
			turn = d.begin.Add(d.window)
		case measuring:
			d.finish()
			d.phase = ending
			turn = time.Now().Add(patience)
		case ending:
			d.fail(int64(d.active), fmt.Sprintf("no answer within %v", patience))
			return nil
		}
	}
	return nil
}

func (d *driver) send(c *conn) error {
	strconv.AppendInt(c.request[:d.idAt], measure.ID(d.first+d.report.Sent, d.scattered), 10)
	c.sent = time.Now()
	n, err := syscall.Write(c.fd, c.request)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if n != len(c.request) {
		return fmt.Errorf("send: the socket took %d of %d bytes", n, len(c.request))
	}
	d.report.Sent++
	d.active++
	return nil
}

// receive takes what has come; after the last byte of an answer it sends the next request.
func (d *driver) receive(c *conn) error {
	n, err := syscall.Read(c.fd, d.spare)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return nil
	}
	if err != nil || n == 0 {
		return fmt.Errorf("the server ended a connection with a request under way (%v)", err)
	}
	if c.status != 0 {
		c.rest -= n
	} else {
		c.answer = append(c.answer, d.spare[:n]...)
		h, complete, err := parseHead(c.answer)
		if err != nil || !complete {
			return err
		}
		c.status, c.rest = h.status, h.length-len(c.answer)
	}
	if c.rest < 0 {
		return errors.New("the server sent more than one answer to a request")
	}
	if c.rest > 0 {
		return nil
	}
	d.answered(c)
	c.answer, c.status = c.answer[:0], 0
	if d.phase == ending {
		return nil
	}
	return d.send(c)
}

func (d *driver) answered(c *conn) {
	d.active--
	if c.status != 200 {
		d.fail(1, fmt.Sprintf("%.600s", c.answer))
		return
	}
	d.report.OK++
	if d.phase == measuring {
		d.times.Record(time.Since(c.sent))
	}
}

func (d *driver) fail(n int64, reason string) {
	if d.report.Bad == 0 {
		d.report.Reason = reason
	}
	d.report.Bad += n
}

// finish writes what the window gave into the report.
func (d *driver) finish() {
	r := &d.report
	r.Seconds = time.Since(d.begin).Seconds()
	r.Count = d.times.Count()
	r.P50, r.P99, r.P999 = micros(d.times.Quantile(0.5)), micros(d.times.Quantile(0.99)), micros(d.times.Quantile(0.999))
	r.Max = micros(d.times.Max())
	own, others := ownCPU()-d.cpu, measure.Busy()-d.busy
	r.LoadCPU = micros(own) / max(1, float64(r.Count))
	for i, after := range d.usage() {
		after.CPU -= d.before[i].CPU
		after.Bytes -= d.before[i].Bytes
		r.Server = append(r.Server, after)
		others -= after.CPU
	}
	r.Others = max(0, (others-own).Seconds()/r.Seconds)
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

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
