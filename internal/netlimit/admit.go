package netlimit

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pollInterval  = time.Millisecond      // between polls of the accept queue
	evictInterval = 50 * time.Millisecond // between searches that found no connection to evict: each visits all
	logInterval   = time.Second           // between reports of refused connections
	maxPause      = time.Second           // after an error of accept

	// Refusing a connection takes about 10 µs. A burst is refused at once; then the rate is bounded, so that
	// refusals take a twentieth of a core from requests.
	refusalBurst = 4096
	refusalEvery = 300 * time.Microsecond
	refusingFor  = time.Second // after the last refusal
)

// admission is the part of a Listener that admits, evicts and refuses.
type admission struct {
	lastRefusal atomic.Int64 // since Listener.start; 0 if there was none for a while

	admitting  sync.Mutex // guards the rest; held while connections are admitted or refused
	backlog    backlog
	pacer      pacer
	evictAfter time.Time
	refused    int // connections that were not reported yet
	reported   time.Time
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
	return l.evict(now)
}

// isRefusing reports whether a connection was refused within about refusingFor.
func (l *Listener) isRefusing() bool { return l.lastRefusal.Load() != 0 }

// pollInOverload lets the goroutines of requests share the work of acceptAll while connections are refused: in an
// overload that goroutine would run only after all of theirs.
func (l *Listener) pollInOverload(now time.Time) {
	switch last := l.lastRefusal.Load(); {
	case last == 0:
	case int64(now.Sub(l.start))-last > int64(refusingFor):
		l.lastRefusal.Store(0)
	default:
		l.pollBacklog(now)
	}
}

// pollBacklog admits connections from the accept queue as long as there are slots, and refuses the others.
func (l *Listener) pollBacklog(now time.Time) {
	if refused := l.takeBacklog(now); refused > 0 {
		l.cfg.Log("refused connections", "connections", refused, "limit", l.cfg.Max,
			"reason", "all connections that "+l.cfg.Setting+" allows are in use")
	}
}

// takeBacklog returns how many refused connections are to be logged now.
func (l *Listener) takeBacklog(now time.Time) int {
	a := &l.admission
	if !a.admitting.TryLock() {
		return 0
	}
	defer a.admitting.Unlock()
	if !a.pacer.refill(now) {
		return 0
	}
	admitted, refused := a.backlog.take(now, a.pacer.budget, func(open func() (net.Conn, error)) bool {
		return l.admit(now, open)
	})
	a.pacer.budget -= admitted + refused
	if refused > 0 {
		a.lastRefusal.Store(int64(now.Sub(l.start)))
	}
	return a.report(now, refused)
}

// report returns how many refusals to log: those since the last report, which was at least logInterval ago.
func (a *admission) report(now time.Time, refused int) (n int) {
	a.refused += refused
	if a.refused == 0 || now.Sub(a.reported) < logInterval {
		return 0
	}
	n, a.refused, a.reported = a.refused, 0, now
	return n
}

// admit opens a connection of the accept queue if there is a slot for it. The caller holds admitting.
func (l *Listener) admit(now time.Time, open func() (net.Conn, error)) bool {
	if l.isFull() && !l.evict(now) {
		return false
	}
	accepted, err := open()
	if err != nil {
		return true // the client has closed it
	}
	if c := l.track(accepted); !l.deliver(c) {
		c.Close()
	}
	return true
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

// evict closes the connections that have waited longest for their client, several at a time because the search is not
// free. The caller holds admitting.
func (l *Listener) evict(now time.Time) bool {
	if now.Before(l.evictAfter) {
		return false
	}
	type candidate struct {
		*conn
		state state
	}
	var overdue []candidate
	for _, c := range l.open() {
		if s := state(c.state.Load()); s.overdue(now.Sub(l.start)) {
			overdue = append(overdue, candidate{c, s})
		}
	}
	slices.SortFunc(overdue, func(a, b candidate) int { return cmp.Compare(a.state.since(), b.state.since()) })
	evicted := 0
	for _, c := range overdue { // not all that are overdue can be evicted
		if evicted > l.cfg.Max/64 {
			break
		}
		if c.conn.evict(c.state) {
			evicted++
		}
	}
	if evicted == 0 {
		l.evictAfter = now.Add(evictInterval)
	}
	return evicted > 0
}
