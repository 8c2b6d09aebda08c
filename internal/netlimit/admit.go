package netlimit

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pollInterval = time.Millisecond // between polls of the accept queue
	logInterval  = time.Second      // between reports of refused or evicted connections
	maxPause     = time.Second      // after an error of accept

	// A burst of connections is refused at once. After it, the rate is bounded, so that refusals take only a small part
	// of a core from requests.
	refusalBurst = 4096
	refusalEvery = 300 * time.Microsecond
	maxTaken     = 4096        // connections at a poll
	overloadFor  = time.Second // after the last eviction or refusal
)

// admission is the part of a Listener that admits, evicts and refuses.
type admission struct {
	overloaded recent // a connection was evicted or refused

	admitting sync.Mutex // guards the rest; held while connections are admitted or refused
	backlog   backlog
	pacer     pacer
	report    report

	failed      arrival       // the last one for which a search found no connection to evict
	failedUntil time.Time     // until then, there is no search for an address with as many connections or more
	lastShed    time.Duration // when a token with more than half of all slots last lost one, since Listener.start
}

// recent records for overloadFor that something has happened.
type recent struct {
	at atomic.Int64 // when, since Listener.start; 0 if it has not happened
}

func (r *recent) set(now time.Duration) { r.at.Store(int64(now)) }
func (r *recent) isSet() bool           { return r.at.Load() != 0 }

// expire resets r if it was set more than overloadFor ago.
func (r *recent) expire(now time.Duration) {
	if at := r.at.Load(); at != 0 && now-time.Duration(at) > overloadFor {
		r.at.CompareAndSwap(at, 0)
	}
}

// pacer bounds the rate of refusals.
type pacer struct {
	last   time.Time
	budget int
}

// refill adds what has accrued since the last call. It reports false if that was less than pollInterval ago.
func (p *pacer) refill(now time.Time) bool {
	if now.Sub(p.last) < pollInterval {
		return false
	}
	p.budget = int(min(int64(p.budget)+int64(now.Sub(p.last)/refusalEvery), refusalBurst))
	p.last = now
	return true
}

// acceptAll accepts connections until the listener is closed.
func (l *Listener) acceptAll() {
	needFile := false
	for pause := pollInterval; ; {
		l.waitForSlot(needFile)
		accepted, err := l.Listener.Accept()
		switch {
		case err == nil:
			l.accepted <- l.track(accepted)
			pause, needFile = pollInterval, false
		case isOutOfFiles(err), isTemporary(err):
			needFile = isOutOfFiles(err)
			l.counters.acceptErrors.Add(1)
			l.cfg.Log("accept failed", "reason", err.Error(), "connections", l.count.Load())
			time.Sleep(pause)
			pause = min(2*pause, maxPause)
		default:
			l.stopped(err)
			return
		}
	}
}

func isTemporary(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && e.Temporary()
}

// waitForSlot returns when another connection can be accepted, or the listener is closed. Where it can refuse
// connections, a slot is freed only for one that has arrived.
func (l *Listener) waitForSlot(needFile bool) {
	for !l.draining.Load() {
		if !needFile && !l.isFull() {
			return
		}
		if needFile || !l.backlog.canRefuse() {
			if l.evictLocked(time.Now()) || !l.isFull() {
				return
			}
		}
		needFile = false
		l.pollBacklog(time.Now())
		select {
		case <-l.freed:
		case <-time.After(2 * pollInterval):
		}
	}
}

func (l *Listener) evictLocked(now time.Time) bool {
	l.admitting.Lock()
	defer l.admitting.Unlock()
	return l.evict(now, netip.Addr{}, false)
}

// pollInOverload lets the goroutines of requests share the work of acceptAll in an overload: that goroutine would run
// only after all of theirs.
func (l *Listener) pollInOverload(now time.Time) {
	if !l.overloaded.isSet() {
		return
	}
	l.overloaded.expire(now.Sub(l.start))
	l.pollBacklog(now)
}

// pollBacklog admits connections from the accept queue as long as there are slots, and refuses the others.
func (l *Listener) pollBacklog(now time.Time) {
	r := l.takeBacklog(now)
	if r.refused > 0 {
		l.cfg.Log("refused connections", "connections", r.refused, "limit", l.cfg.Max,
			"reason", "all connections that "+l.cfg.Setting+" allows are in use")
	}
	if r.evicted > 0 {
		l.cfg.Log("closed connections", "connections", r.evicted, "limit", l.cfg.Max, "from", r.from.String(),
			"reason", "all connections that "+l.cfg.Setting+" allows are in use, and this address has the most without a token")
	}
}

// takeBacklog returns what is to be logged now.
func (l *Listener) takeBacklog(now time.Time) report {
	a := &l.admission
	if !a.admitting.TryLock() {
		return report{}
	}
	defer a.admitting.Unlock()
	if !a.pacer.refill(now) {
		return report{}
	}
	refused := a.backlog.take(now, a.pacer.budget, func(from netip.Addr, open func() (net.Conn, error)) bool {
		return l.admit(time.Now(), l.countedAddress(from), open) // a long queue takes a while
	})
	a.pacer.budget -= refused
	if a.report.refused += refused; refused > 0 {
		a.overloaded.set(now.Sub(l.start))
	}
	return a.report.take(now)
}

// report is what has not been logged yet.
type report struct {
	refused int
	evicted int        // because their address had the most connections without a token
	from    netip.Addr // the address of the last of them
	last    time.Time  // when a report was last logged
}

// take returns what to log if the last report was at least logInterval ago.
func (r *report) take(now time.Time) (due report) {
	if r.refused == 0 && r.evicted == 0 || now.Sub(r.last) < logInterval {
		return report{}
	}
	due, *r = *r, report{last: now}
	return due
}

// admit opens a connection of the accept queue if there is a slot for it. The caller holds admitting.
func (l *Listener) admit(now time.Time, from netip.Addr, open func() (net.Conn, error)) bool {
	if l.isFull() && !l.evict(now, from, true) {
		reason := allInUse
		if l.hasShare(from) {
			reason = hasItsShare
		}
		l.counters.refused[reason].Add(1)
		return false
	}
	accepted, err := open()
	if err != nil {
		return true // no file is free, or the client has reset the connection: it gets no response
	}
	if c := l.track(accepted); !l.deliver(c) {
		c.Close()
	}
	return true
}

// hasShare reports whether an address has its share of the connections or more.
func (l *Listener) hasShare(address netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return address.IsValid() && l.owners.count(ownerKey{address: address}) >= l.cfg.PerAddress
}

func (l *Listener) deliver(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	select {
	case l.accepted <- c:
		return true
	default:
		return false
	}
}
