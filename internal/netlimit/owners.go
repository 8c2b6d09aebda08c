package netlimit

import (
	"context"
	"sync/atomic"
	"time"
)

// shedInterval is how often an owner of more than half of all connections loses one while others are refused.
const shedInterval = 8 * time.Millisecond

// owners counts the connections of each owner.
type owners struct {
	all      map[[32]byte]*owner // those that have connections; guarded by Listener.mu
	count    atomic.Int32        // len(all)
	lastShed atomic.Int64        // since Listener.start
}

type owner struct {
	key   [32]byte
	conns atomic.Int32 // connections whose last request was the owner's
}

// Owners returns how many owners have connections.
func (l *Listener) Owners() int { return int(l.owners.count.Load()) }

// Identify records whose request the connection of ctx carries. It reports true when the connection is to be closed
// after the response: while connections are refused, an owner of more than half of the slots frees a slot for others.
func (l *Listener) Identify(ctx context.Context, key [32]byte) (last bool) {
	c := connOf(ctx)
	if c == nil {
		return false
	}
	if c.owner == nil || c.owner.key != key {
		l.assign(c, key)
	}
	if !l.isRefusing() || !l.isFull() || int(c.owner.conns.Load()) <= l.cfg.Max/2 {
		return false
	}
	now, then := int64(time.Since(l.start)), l.owners.lastShed.Load()
	return now-then >= int64(shedInterval) && l.owners.lastShed.CompareAndSwap(then, now)
}

func (l *Listener) assign(c *conn, key [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.conns[c]; !open { // already closed: it counts for none
		c.owner = &owner{key: key}
		return
	}
	l.owners.remove(c)
	l.owners.add(c, key)
}

// add and remove are called with Listener.mu held.
func (o *owners) add(c *conn, key [32]byte) {
	if o.all[key] == nil {
		o.all[key] = &owner{key: key}
	}
	c.owner = o.all[key]
	c.owner.conns.Add(1)
	o.count.Store(int32(len(o.all)))
}

func (o *owners) remove(c *conn) {
	if c.owner != nil && c.owner.conns.Add(-1) == 0 {
		delete(o.all, c.owner.key)
		o.count.Store(int32(len(o.all)))
	}
}
