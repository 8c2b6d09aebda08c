package listen

import (
	"context"
	"net/netip"
)

// ownerKey identifies the owner of connections: a token, or the address of clients that have not presented one. The
// zero value is the owner of connections without either, such as those of trusted proxies.
type ownerKey struct {
	token   [32]byte
	address netip.Addr
}

// owner has at least one connection.
type owner struct {
	key   ownerKey
	conns int // guarded by Listener.mu
}

// isAnonymous reports whether the owner is not a token.
func (o *owner) isAnonymous() bool { return o.key.token == [32]byte{} }

// address has at least one connection, with or without a token.
type address struct {
	ip    netip.Addr
	conns int // guarded by Listener.mu
}

// connsOf is how many connections an address has. The caller holds mu.
func (l *Listener) connsOf(ip netip.Addr) int {
	if a := l.addresses[ip]; a != nil {
		return a.conns
	}
	return 0
}

// add counts an open connection; ip is the zero value if it is exempt. The caller holds mu.
func (l *Listener) add(c *conn, ip netip.Addr) {
	c.index = len(l.conns)
	l.conns = append(l.conns, c)
	if ip.IsValid() {
		if l.addresses[ip] == nil {
			l.addresses[ip] = &address{ip: ip}
		}
		c.address = l.addresses[ip]
		c.address.conns++
	}
	l.own(c, ownerKey{address: ip})
}

// remove is called when a connection closes, at least once. The caller holds mu.
func (l *Listener) remove(c *conn) {
	if c.index < 0 {
		return
	}
	last := l.conns[len(l.conns)-1]
	l.conns[c.index], last.index = last, c.index
	l.conns[len(l.conns)-1] = nil
	l.conns = l.conns[:len(l.conns)-1]
	c.index = -1
	if a := c.address; a != nil {
		if a.conns--; a.conns == 0 {
			delete(l.addresses, a.ip)
		}
	}
	if c.closing.Load() {
		l.marked--
	}
	l.disown(c)
}

// own and disown count a connection of an owner. The caller holds mu.
func (l *Listener) own(c *conn, key ownerKey) {
	c.owner = l.owners[key]
	if c.owner == nil {
		c.owner = &owner{key: key}
		l.owners[key] = c.owner
		if !c.owner.isAnonymous() {
			l.tokens.Add(1)
		}
	}
	c.owner.conns++
	if c.owner.isAnonymous() {
		l.anonymous++
	}
}

func (l *Listener) disown(c *conn) {
	if c.owner.isAnonymous() {
		l.anonymous--
	}
	if c.owner.conns--; c.owner.conns > 0 {
		return
	}
	delete(l.owners, c.owner.key)
	if !c.owner.isAnonymous() {
		l.tokens.Add(-1)
	}
}

// Tokens returns how many tokens have connections.
func (l *Listener) Tokens() int { return int(l.tokens.Load()) }

// SetToken records the token of a request on the connection of ctx, by a hash that is not zero.
func (l *Listener) SetToken(ctx context.Context, hash [32]byte) {
	c := connOf(ctx)
	if c.owner.key.token == hash {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.index >= 0 { // it is not closed
		l.disown(c)
		l.own(c, ownerKey{token: hash})
	}
}

// Park lets the connection of ctx be evicted, as if its client had to send the rest of a request, until resume is
// called. resume reports whether the connection was not evicted.
func (l *Listener) Park(ctx context.Context) (resume func() bool) {
	c := connOf(ctx)
	c.enter(receiving, l.now())
	return c.work
}

// Last reports whether the response to the request of ctx must be the last of its connection: the service is shutting
// down, the connection is evicted, or connections are scarce and the client has presented no token.
func (l *Listener) Last(ctx context.Context) bool {
	c := connOf(ctx)
	return l.draining.Load() || c.closing.Load() || c.isPressed()
}

// isPressed reports whether connections are scarce and the client has presented no token.
func (c *conn) isPressed() bool {
	return c.owner.isAnonymous() && int64(c.listener.now())-c.listener.scarce.Load() < int64(scarceTime)
}
