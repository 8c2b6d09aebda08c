package netlimit

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
)

// ownerKey identifies the owner of connections: a token, or the address of clients that have not presented a token. The
// zero value is the owner of connections without either, such as those of trusted proxies.
type ownerKey struct {
	token   [32]byte
	address netip.Addr
}

// remoteAddress returns the zero value for a connection without an IP address.
func remoteAddress(c net.Conn) netip.Addr {
	if c, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return c.AddrPort().Addr()
	}
	return netip.Addr{}
}

// owner has at least one connection.
type owner struct {
	key   ownerKey
	conns atomic.Int32
}

// isAnonymous reports whether the owner is not a token.
func (o *owner) isAnonymous() bool { return o.key.token == [32]byte{} }

// owners counts the connections of each owner. Its methods are called with Listener.mu held.
type owners struct {
	all       map[ownerKey]*owner
	byAddress map[netip.Addr]int // connections of each address, with and without a token; without the exempt ones
	anonymous int                // connections of owners that are not tokens
	tokens    atomic.Int32       // owners that are tokens
}

func (o *owners) add(c *conn, key ownerKey) {
	c.owner = o.all[key]
	if c.owner == nil {
		c.owner = &owner{key: key}
		o.all[key] = c.owner
		if !c.owner.isAnonymous() {
			o.tokens.Add(1)
		}
	}
	c.owner.conns.Add(1)
	if c.owner.isAnonymous() {
		o.anonymous++
	}
}

func (o *owners) remove(c *conn) {
	if c.owner.isAnonymous() {
		o.anonymous--
	}
	if c.owner.conns.Add(-1) > 0 {
		return
	}
	delete(o.all, c.owner.key)
	if !c.owner.isAnonymous() {
		o.tokens.Add(-1)
	}
}

// count is how many connections an owner has.
func (o *owners) count(key ownerKey) int {
	if owner := o.all[key]; owner != nil {
		return int(owner.conns.Load())
	}
	return 0
}

// Owners returns how many tokens have connections.
func (l *Listener) Owners() int { return int(l.owners.tokens.Load()) }

// Identify records the token of a request on the connection of ctx, by a hash that is not zero.
func (l *Listener) Identify(ctx context.Context, token [32]byte) {
	if c := connOf(ctx); c != nil && c.owner.key.token != token {
		l.assign(c, ownerKey{token: token})
	}
}

// Last reports whether the response to the request of ctx must be the last of its connection: the service is shutting
// down, the connection is marked, or in an overload the client has presented no token.
func (l *Listener) Last(ctx context.Context) bool {
	if l.draining.Load() {
		return true
	}
	c := connOf(ctx)
	return c != nil && (c.closing.Load() || c.owner.isAnonymous() && l.overloaded.isSet())
}

// hasMost reports whether an owner has more than half of all slots.
func (l *Listener) hasMost(o *owner) bool { return int(o.conns.Load()) > l.cfg.Max/2 }

func (l *Listener) assign(c *conn, key ownerKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.conns[c]; !open { // already closed: it does not count
		c.owner = &owner{key: key}
		return
	}
	if c.owner.isAnonymous() {
		limitUnsent(c.socket, 0)
	}
	l.owners.remove(c)
	l.owners.add(c, key)
}
