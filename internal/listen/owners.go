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

// add counts an open connection. The caller holds mu, as for all functions here that are not exported.
func (l *Listener) add(c *conn) {
	c.index = len(l.conns)
	l.conns = append(l.conns, c)
	if c.address.IsValid() {
		l.addresses[c.address]++
	}
	l.own(c, ownerKey{address: c.address})
}

// remove is called when a connection closes, at least once.
func (l *Listener) remove(c *conn) {
	if c.index < 0 {
		return
	}
	last := l.conns[len(l.conns)-1]
	l.conns[c.index], last.index = last, c.index
	l.conns[len(l.conns)-1] = nil
	l.conns = l.conns[:len(l.conns)-1]
	c.index = -1
	if l.addresses[c.address]--; l.addresses[c.address] <= 0 {
		delete(l.addresses, c.address)
	}
	if c.closing.Load() {
		l.marked--
	}
	l.disown(c)
}

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
	if c == nil || c.owner.key.token == hash {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.index < 0 { // already closed: it does not count
		c.owner = &owner{key: ownerKey{token: hash}}
		return
	}
	l.disown(c)
	l.own(c, ownerKey{token: hash})
}

// Last reports whether the response to the request of ctx must be the last of its connection: the service is shutting
// down, the connection makes way for another, or connections are scarce and the client has presented no token.
func (l *Listener) Last(ctx context.Context) bool {
	if l.draining.Load() {
		return true
	}
	c := connOf(ctx)
	return c != nil && (c.closing.Load() || c.owner.isAnonymous() && int64(l.now())-l.scarce.Load() < int64(scarceTime))
}
