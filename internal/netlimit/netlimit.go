// Package netlimit bounds the connections of an http.Server.
//
// A request that waits unread in its socket costs nothing, while reading a request in order to refuse it costs more
// than half of a create. So the number of connections is limited, and every request on an open connection is served.
//
// When all slots are in use and another connection arrives, connections are evicted in its favour, in this order:
//
//  1. Connections without a token that wait for their client, if their address has more of these than the arriving
//     address has connections: at least two, and a 128th of all slots, more. The address with the most is first, and
//     any wait is long enough.
//  2. Other connections without a token, after a wait of 100 ms.
//  3. Connections as in 1, but with a request in flight. They are marked: see below.
//  4. One connection of a token that has more than half of all slots, after a wait of 100 ms, or 2 s with an incomplete
//     request. Otherwise one is marked.
//  5. Connections of tokens that have sent nothing for seconds, if no token has more than half of all slots, and
//     connections without a token have at most a sixteenth.
//
// A marked connection loses its slot at once, and is closed after its next response.
//
// An address that has its share of connections without a token (Config.PerAddress) evicts by rule 2 only connections of
// addresses with at least as many, after a wait of 20 ms, and none by rule 5. An address that has its share of all
// connections, with and without a token, evicts by rule 4 one every 8 ms, and only if another token is connected. While
// a token has more than half of all slots, rule 2 is restricted for such an address too.
//
// If there is nothing to evict, the new connection gets a prepared response that refuses it. The rate of refusals is
// bounded; beyond it, connections wait in the kernel's accept queue. For a second after an eviction or a refusal, a
// connection without a token is closed after one response.
//
// With TLS, a connection counts from the moment it is accepted, and a handshake that hangs is a wait for the client.
// Requests are checked after decryption.
//
// On shutdown, no further connection is accepted. Connections without a request are closed after 1 s, and incomplete
// requests of clients without a token after 2 s. Requests in flight get a response, the last of their connection.
package netlimit

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plantstore/internal/machine"
	"plantstore/internal/share"
)

// lingerTime is how long a connection without a request stays open on shutdown. Its client does not know of the
// shutdown and may be sending: such a request still gets a response.
const lingerTime = time.Second

// lateRequest is how long a drain waits for a client without a token to send the rest of a request or to read the
// response.
const lateRequest = 2 * time.Second

// Config is what a Listener needs to know.
type Config struct {
	Max     int    // open connections
	Setting string // what determines Max, for the log: a flag, or the port

	// PerAddress is the share of an address: with as many connections it can evict fewer others, as described in the
	// package comment. 0 is a sixteenth of Max.
	PerAddress int
	// Exempt reports whether PerAddress does not apply to an address because many clients use it: the address of a
	// proxy, for example. If Exempt is nil, no address is exempt.
	Exempt func(netip.Addr) bool

	// TLS is used on every connection if it is not nil.
	TLS *tls.Config

	// Refusal returns a whole response for a connection that is not admitted. With TLS such a connection gets an alert.
	Refusal func() []byte
	// ErrorResponse returns the response to send in place of one with this status that net/http sends by itself,
	// without calling a handler. If it returns nil, net/http's is sent. Status 426 means that a client does not use TLS
	// and must.
	ErrorResponse func(status int, client net.Addr) []byte

	Log func(message string, attrs ...any)
}

// Listener accepts connections and limits them as described in the package comment.
type Listener struct {
	net.Listener
	cfg       Config
	start     time.Time     // times are stored as durations since then
	draining  atomic.Bool   // no more connections are accepted
	closeIdle atomic.Bool   // lingerTime has passed
	count     atomic.Int32  // open connections that have a slot
	freed     chan struct{} // has an element after a connection was closed

	acceptOnce sync.Once
	accepted   chan *conn // closed after the last one

	admission

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closed  bool          // the last connection has been accepted
	failure error         // the reason
	empty   chan struct{} // closed when closed is set and conns is empty
	owners  owners

	marked    int // marked connections, which have no slot
	maxMarked int

	counters counters
}

// New returns a Listener of the connections of l. Its Serve must be called, not Accept.
func New(l net.Listener, cfg Config) *Listener {
	if cfg.PerAddress == 0 {
		cfg.PerAddress = defaultShare(cfg.Max)
	}
	if cfg.TLS != nil {
		cfg.Refusal = func() []byte { return tlsRefusal }
	}
	limited := &Listener{
		Listener: l, cfg: cfg, start: time.Now(), freed: make(chan struct{}, 1), accepted: make(chan *conn, cfg.Max),
		conns: map[*conn]struct{}{}, empty: make(chan struct{}),
		owners: owners{all: map[ownerKey]*owner{}, byAddress: map[netip.Addr]int{}},
	}
	spare := maxRefusals(cfg.Max, machine.Read().Files)
	limited.maxMarked = min(max(1, cfg.Max/4), spare/2)
	limited.backlog = newBacklog(l, cfg.Refusal, spare-limited.maxMarked, &limited.admitting)
	return limited
}

// defaultShare is the share of an address unless it is configured.
func defaultShare(slots int) int { return max(1, slots/16) }

// Serve is s.Serve on this listener. It sets the hooks of s that it needs; s must have all timeouts, and set
// DisableGeneralOptionsHandler, so that its handler is called for every request.
func (l *Listener) Serve(s *http.Server) error {
	s.ConnState, s.ConnContext, s.Handler = l.connState, connContext, whileHandling(s.Handler)
	return s.Serve(l)
}

// Accept returns the next admitted connection, for http.Server.
func (l *Listener) Accept() (net.Conn, error) {
	l.acceptOnce.Do(func() { go l.acceptAll() })
	if c, ok := <-l.accepted; ok {
		return c, nil
	}
	return nil, l.failure
}

// Close accepts no more connections. Open ones stay open.
func (l *Listener) Close() error {
	l.draining.Store(true)
	return l.Listener.Close()
}

// Draining reports whether the listener accepts no more connections, so that each response is to be the last of its
// connection.
func (l *Listener) Draining() bool { return l.draining.Load() }

// Drain accepts no more connections, closes connections as described in the package comment, and waits for the others
// until ctx ends. It returns how many requests were cut off then.
func (l *Listener) Drain(ctx context.Context) (cut int) {
	l.Close()
	for {
		select {
		case <-l.empty:
			return 0
		case now := <-time.After(lingerTime):
			l.closeIdle.Store(true)
			for _, c := range l.waiting(now) {
				go c.Close()
			}
			continue
		case <-ctx.Done():
		}
		for _, c := range l.open() {
			if c.phase().inRequest() {
				cut++
			}
			c.abort()
		}
		return cut
	}
}

// waiting returns the connections without a request, and those without a token that have waited for the rest of a
// request, or for the client to read the response, for too long. A request that was received, but not read yet by a
// busy process, still gets a response.
func (l *Listener) waiting(now time.Time) (all []*conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		s := state(c.state.Load())
		p := s.phase()
		late := c.owner.isAnonymous() && p.waitsForClient() && s.overdue(now.Sub(l.start), lateRequest)
		if unread, _ := peek(c.socket); !unread && !p.inRequest() || p.inRequest() && late {
			all = append(all, c)
		}
	}
	return all
}

// disconnectCheck is how often CancelOnDisconnect checks.
const disconnectCheck = 100 * time.Millisecond

// CancelOnDisconnect returns a context that also ends when the client of the request whose context ctx is closes its
// connection. net/http does that for every request, which is too expensive for a create: see conn.Read. Handlers
// of long reads use it. Where disconnects can't be detected, the context ends only with ctx.
func (l *Listener) CancelOnDisconnect(ctx context.Context) (context.Context, context.CancelFunc) {
	c := connOf(ctx)
	ctx, cancel := context.WithCancel(ctx)
	if c == nil {
		return ctx, cancel
	}
	go func() {
		for {
			select {
			case <-time.After(disconnectCheck):
				if _, closed := peek(c.socket); closed {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

func (l *Listener) open() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.conns))
}

func (l *Listener) isFull() bool { return int(l.count.Load()) >= l.cfg.Max }

func (l *Listener) track(accepted net.Conn) *conn {
	c := &conn{Conn: accepted, socket: accepted, listener: l}
	if l.cfg.TLS != nil {
		c.Conn = tls.Server(accepted, l.cfg.TLS)
	}
	c.move(fresh, time.Now())
	limitUnsent(accepted, maxUnsent)
	c.address = l.countedAddress(remoteAddress(accepted))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	l.owners.add(c, ownerKey{address: c.address})
	if c.address.IsValid() {
		l.owners.byAddress[c.address]++
	}
	l.count.Add(1)
	return c
}

// countedAddress returns the address or network that a connection counts for, or the zero value if it is exempt.
func (l *Listener) countedAddress(address netip.Addr) netip.Addr {
	if l.cfg.Exempt != nil && l.cfg.Exempt(address.Unmap().WithZone("")) {
		return netip.Addr{}
	}
	return share.Network(address)
}

func (l *Listener) untrack(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	l.owners.remove(c)
	if l.owners.byAddress[c.address]--; l.owners.byAddress[c.address] <= 0 {
		delete(l.owners.byAddress, c.address)
	}
	if c.closing.Load() {
		l.marked--
	} else {
		l.count.Add(-1)
	}
	l.signalEmpty()
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// stopped records that no connection will be accepted any more.
func (l *Listener) stopped(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !errors.Is(reason, net.ErrClosed) {
		reason = errors.New(reason.Error()) // http.Server would accept again after a temporary error
	}
	l.closed, l.failure = true, reason
	close(l.accepted)
	l.signalEmpty()
}

// signalEmpty notifies Drain when the last connection is closed. The caller holds mu.
func (l *Listener) signalEmpty() {
	if l.closed && len(l.conns) == 0 {
		select {
		case <-l.empty: // one more was accepted and closed after the signal
		default:
			close(l.empty)
		}
	}
}
