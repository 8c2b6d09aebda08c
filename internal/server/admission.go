package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/machine"
)

// How the service takes more than it can do.
//
// A request that waits unread on its connection costs nothing; one that is read in order to be refused costs
// more than half of a create. So what is bounded is connections, each with one request at a time: all of
// them are served, in turn. One more makes room by ending those that have been idle longest. Where all are
// at work it is refused at the door, with an answer that is ready, and the rest wait with the kernel.
const (
	// A connection gives way when nothing was ever asked on it, or it is idle, or a request has been arriving, for
	silentFor = 100 * time.Millisecond
	idleFor   = time.Second
	slowFor   = 2 * time.Second
	stuckFor  = 25 * time.Second      // or its answer is not read: longer than any create takes
	sweepGap  = 50 * time.Millisecond // looking for one is not free
	tellFor   = 20 * time.Millisecond // telling one why

	// Refusing one takes about 10 µs. A crowd that comes at once is refused at once; one that keeps coming
	// is paced, so that it takes a twentieth of a core from those who are served.
	lookGap      = time.Millisecond
	crowdLasts   = time.Second // after the last who was refused
	refuseAtOnce = 4096
	refuseEvery  = 300 * time.Microsecond

	// A token that has more than half of all connections loses one this often while others can't get in.
	yieldGap = 8 * time.Millisecond
)

// crowd is the part of a listener that bounds connections and shares them out.
type crowd struct {
	max     int
	bound   string        // what that is called where somebody can change it
	count   atomic.Int32  // connections
	crowded atomic.Int64  // when somebody was last refused, in ns since 1970; 0 when that is long ago
	freed   chan struct{} // holds something when a connection has ended
	door    door

	swept   time.Time // when nobody was found to give way
	noFiles bool      // the last connection could not be had for lack of files

	yielded atomic.Int64 // when a token last gave up a connection, in ns since 1970
	tokens  atomic.Int32 // tokens that have connections
	shares  map[[32]byte]*share
}

// share is what one token has of the service.
type share struct {
	hash  [32]byte
	conns atomic.Int32 // connections whose last request had the token
}

func newCrowd(most int) crowd {
	return crowd{max: most, bound: "--max-conns", freed: make(chan struct{}, 1), shares: map[[32]byte]*share{}, door: door{most: leavingConns(most, machine.Read().Files)}}
}

// acceptAll is how connections come in. It ends with the listener.
func (l *listener) acceptAll() {
	for pause := lookGap; ; {
		l.makeRoom()
		accepted, err := l.Listener.Accept()
		switch {
		case err == nil:
			l.arrived <- l.track(accepted)
			pause = lookGap
		case outOfFiles(err), isTemporary(err):
			l.noFiles = outOfFiles(err)
			l.log("no connection", "reason", err.Error(), "open", l.count.Load())
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		default:
			l.mu.Lock()
			defer l.mu.Unlock()
			if !errors.Is(err, net.ErrClosed) {
				err = errors.New(err.Error()) // not one that the library would try again
			}
			l.deaf, l.failure = true, err
			close(l.arrived)
			l.signal()
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

func (l *listener) track(accepted net.Conn) *conn {
	c := &conn{Conn: accepted, from: l}
	c.since.Store(time.Now().UnixNano())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	l.count.Add(1)
	return c
}

// makeRoom returns when there is room for another connection, or the listener is closed.
func (l *listener) makeRoom() {
	for !l.hasRoom() && !l.draining.Load() {
		l.answerDoor(time.Now())
		select {
		case <-l.freed:
		case <-time.After(2 * lookGap):
		}
	}
}

func (l *listener) hasRoom() bool {
	switch {
	case l.noFiles: // somebody waits, and there is no file for him
		l.noFiles = false
		l.door.mu.Lock()
		defer l.door.mu.Unlock()
		return l.evict(time.Now()) > 0 || !l.isFull()
	case canRefuse: // what gives way does so when somebody is at the door
		return !l.isFull()
	}
	return !l.isFull() || l.evict(time.Now()) > 0
}

// look is for whoever has a request: in a crowd everyone answers the door now and then. acceptAll would get its
// turn only after all of them.
func (l *listener) look(now time.Time) {
	if now.UnixNano()-l.crowded.Load() > int64(crowdLasts) {
		l.crowded.Store(0)
		return
	}
	l.answerDoor(now)
}

// answerDoor lets in who waits, as long as there is room, and refuses the others.
func (l *listener) answerDoor(now time.Time) {
	if refused := l.door.answer(l, now); refused > 0 {
		l.log("refused connections", "connections", refused, "reason", "as many as "+l.bound+" are at work", "most", l.max)
	}
}

// letIn takes a connection that was accepted at the door, unless there is no room and nobody gives way. The
// caller holds the door's mu.
func (l *listener) letIn(now time.Time, accept func() (net.Conn, error)) bool {
	if l.isFull() && l.evict(now) == 0 {
		return false
	}
	accepted, err := accept()
	if err != nil {
		return true // it is gone
	}
	c := l.track(accepted)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.deaf {
		select {
		case l.arrived <- c:
			return true
		default:
		}
	}
	go c.Close() // it takes mu
	return true
}

func (l *listener) isFull() bool { return int(l.count.Load()) >= l.max }

// awaits notes that a request begins to arrive, or that the next one is waited for.
func (c *conn) awaits(now time.Time) {
	c.since.Store(now.UnixNano())
	if c.from.crowded.Load() != 0 {
		c.from.look(now)
	}
}

// evict ends the connections that have waited longest for their client, several at once so that looking for
// them costs little. The caller holds the door's mu.
func (l *listener) evict(now time.Time) int {
	if now.Sub(l.swept) < sweepGap {
		return 0
	}
	var idle []*conn
	for _, c := range l.open() {
		if c.overdue(now) {
			idle = append(idle, c)
		}
	}
	slices.SortFunc(idle, func(a, b *conn) int { return cmp.Compare(a.since.Load(), b.since.Load()) })
	ended := 0
	for _, c := range idle { // some of the oldest may not give way
		if ended > l.max/64 {
			break
		}
		if c.overdue(now) && c.giveWay(now) { // the rest of its request may have come just now
			ended++
		}
	}
	if ended == 0 {
		l.swept = now
	}
	return ended
}

// isAnswered reports whether a handler has the request, and does not wait for more of it.
func (c *conn) isAnswered() bool { return c.busy.Load() && !c.reading.Load() }

// overdue reports whether a connection has had its time, as it is used now.
func (c *conn) overdue(now time.Time) bool {
	patience := idleFor
	switch {
	case c.isAnswered():
		patience = stuckFor
	case c.half.Load():
		patience = slowFor
	case !c.asked.Load():
		patience = silentFor
	}
	return now.UnixNano()-c.since.Load() >= int64(patience)
}

// giveWay ends a connection, unless its client has sent something meanwhile that we are late to read. While it is
// answered that is not why it is unread: who sends requests ahead, and reads no answer, would never give way.
// One that has never asked anything is told why: from here on nothing that it sends is read. To one that has, that
// would be a lie if its request were being carried out.
func (c *conn) giveWay(now time.Time) bool {
	if !c.isAnswered() && !silent(c.Conn) {
		return false
	}
	c.gone.Store(true)
	switch asked := c.asked.Load(); {
	case !asked:
		c.Conn.SetWriteDeadline(time.Now().Add(tellFor)) // nothing was written before, so it never waits
		c.Conn.Write(httpapi.Refusal())
	case now.UnixNano()-c.since.Load() < int64(idleFor): // it has begun to ask
		c.gone.Store(false)
		return false
	}
	c.Close()
	return true
}

type connKey struct{}

// connContext is the server's ConnContext hook: it lets connOf find the connection of a request.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// Identify notes whose request is on a connection, and reports whether it is the last one there: while the
// service is full, a token that has more than half of it gives connections up for others. The request itself
// has waited for its turn, and is served.
func (l *listener) Identify(ctx context.Context, who [32]byte) (last bool) {
	c := connOf(ctx)
	if c == nil {
		return false
	}
	if c.share == nil || c.share.hash != who {
		l.share(c, who)
	}
	if l.crowded.Load() == 0 || !l.isFull() || int(c.share.conns.Load()) <= l.max/2 {
		return false
	}
	now, then := time.Now().UnixNano(), l.yielded.Load()
	return now-then >= int64(yieldGap) && l.yielded.CompareAndSwap(then, now)
}

// Owners is how many tokens have connections.
func (l *listener) Owners() int { return int(l.tokens.Load()) }

// Draining reports whether the service is shutting down.
func (l *listener) Draining() bool { return l.draining.Load() }

func (l *listener) share(c *conn, who [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.conns[c]; !open { // it was ended meanwhile: nobody counts it
		c.share = &share{hash: who}
		return
	}
	l.unshare(c)
	s := l.shares[who]
	if s == nil {
		s = &share{hash: who}
		l.shares[who] = s
	}
	s.conns.Add(1)
	c.share = s
	l.tokens.Store(int32(len(l.shares)))
}

// unshare takes a connection from its token. The caller holds mu.
func (l *listener) unshare(c *conn) {
	if c.share != nil && c.share.conns.Add(-1) == 0 {
		delete(l.shares, c.share.hash)
		l.tokens.Store(int32(len(l.shares)))
	}
}

// left tells who waits for room that a connection has ended. The caller holds mu.
func (l *listener) left(c *conn) {
	l.unshare(c)
	l.count.Add(-1)
	select {
	case l.freed <- struct{}{}:
	default:
	}
}
