// Package listen decides which clients have a connection to an http.Server.
//
// The number of connections is bounded. When all are in use and another arrives, an open connection is evicted for it:
// see arrival.judge. If none can be evicted, the new one gets a prepared 503. For a second after that, each response to
// a client without a token is the last of its connection.
//
// Everything that a client sends is checked for unambiguous framing: see framing.
package listen

import (
	"context"
	"crypto/tls"
	"io"
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

// Config is what a Listener needs to know.
type Config struct {
	Max     int    // open connections
	Setting string // what determines Max, for the log: a flag, or the port

	// Exempt reports whether the connections of an address are not counted, because many clients use it, as that of a
	// proxy. It may be nil.
	Exempt func(netip.Addr) bool

	TLS *tls.Config // of every connection; nil for plain HTTP

	// Refusal returns a whole response for a connection that is not admitted. With TLS, it gets an alert instead.
	Refusal func() []byte
	// ErrorResponse returns the response to send in place of one with this status that net/http sends by itself,
	// without calling a handler. If it returns nil, net/http's is sent. Status 426 means that a client does not use TLS
	// and must.
	ErrorResponse func(status int, client net.Addr) []byte

	Log func(message string, attrs ...any)
}

// Listener accepts connections for an http.Server, as the package comment describes.
type Listener struct {
	net.Listener
	cfg      Config
	start    time.Time     // times are stored as durations since then
	refusing chan struct{} // has an element for each connection that is being refused

	draining atomic.Bool  // no more connections are accepted
	stopped  atomic.Bool  // Serve has returned
	scarce   atomic.Int64 // when a connection last arrived while all were in use
	tokens   atomic.Int32 // owners that are tokens

	mu        sync.Mutex
	conns     []*conn // conn.index is the place of each
	owners    map[ownerKey]*owner
	addresses map[netip.Addr]*address
	anonymous int // connections of owners that are not tokens
	marked    int // connections that are about to close: they do not count for Config.Max
	maxMarked int
	stats     Stats // without Open

	nextEviction time.Duration // when the next one is due for an address that has its share
}

// New returns a Listener of the connections of l. Its Serve must be called, not Accept.
func New(l net.Listener, cfg Config) *Listener {
	if cfg.TLS != nil {
		cfg.Refusal = func() []byte { return tlsRefusal }
	}
	spare := spareFiles(cfg.Max, machine.Read().Files)
	marked := min(max(1, cfg.Max/4), spare/2)
	limited := &Listener{
		Listener: l, cfg: cfg, start: time.Now(), maxMarked: marked, stats: newStats(),
		refusing: make(chan struct{}, min(spare-marked, maxRefusals, max(64, 2*cfg.Max))),
		owners:   map[ownerKey]*owner{}, addresses: map[netip.Addr]*address{},
	}
	limited.scarce.Store(int64(-scarceTime))
	return limited
}

func (l *Listener) now() time.Duration { return time.Since(l.start) }

// Serve is s.Serve on this listener. It sets the hooks of s that it needs. s must have all timeouts, and set
// DisableGeneralOptionsHandler, so that its handler is called for every request.
func (l *Listener) Serve(s *http.Server) error {
	handler := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connOf(r.Context()).handling = true
		handler.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.ConnState = func(nc net.Conn, s http.ConnState) {
		switch c := nc.(*conn); s {
		case http.StateActive:
			c.inHead = false
		case http.StateIdle:
			c.handling, c.waitsSince = false, 0
		}
	}
	defer l.stopped.Store(true)
	return s.Serve(l)
}

// Accept returns the next connection that is admitted. http.Server calls it again after a temporary error, such as
// that no file is free, once it has waited for a moment.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		socket, err := l.Listener.Accept()
		if err != nil && l.draining.Load() {
			return nil, err
		}
		if err != nil {
			l.mu.Lock()
			l.stats.AcceptErrors++
			l.evict(netip.Addr{}, l.now())
			l.mu.Unlock()
			return nil, err
		}
		if c := l.admit(socket); c != nil {
			return c, nil
		}
	}
}

// admit returns nil if the connection is refused.
func (l *Listener) admit(socket net.Conn) (c *conn) {
	address, now := l.countedAddress(socket.RemoteAddr()), l.now()
	l.mu.Lock()
	full := len(l.conns)-l.marked >= l.cfg.Max
	switch {
	case !full || l.evict(address, now):
		c = &conn{Conn: socket, socket: socket, listener: l}
		c.enter(idle, now)
		if l.cfg.TLS != nil {
			c.Conn = tls.Server(socket, l.cfg.TLS)
		}
		l.add(c, address)
	case l.connsOf(address) >= l.share():
		l.stats.Refused["address_share"]++
	default:
		l.stats.Refused["limit"]++
	}
	l.mu.Unlock()
	if full {
		l.noteScarce(now)
	}
	if c == nil {
		l.refuse(socket)
	}
	return c
}

// share is how many connections an address may have and still take those of others.
func (l *Listener) share() int { return max(1, l.cfg.Max/16) }

// countedAddress returns the address or network that a connection counts for, or the zero value if it is exempt.
func (l *Listener) countedAddress(from net.Addr) netip.Addr {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := tcp.AddrPort().Addr()
	if l.cfg.Exempt != nil && l.cfg.Exempt(address.Unmap().WithZone("")) {
		return netip.Addr{}
	}
	return share.Network(address)
}

const (
	scarceTime    = time.Second // after the last connection that arrived while all were in use
	maxRefusals   = 512         // at a time; further connections are closed without a response
	maxRefused    = 1 << 20     // bytes that a refused client may send before its connection is closed nevertheless
	requestWait   = 20 * time.Millisecond
	refusalWait   = 200 * time.Millisecond
	lingerTime    = time.Second     // how long a connection without a request stays open in a drain
	lateRequest   = 2 * time.Second // how long a drain waits for a client without a token
	drainInterval = 10 * time.Millisecond
)

// noteScarce records that all connections were in use. It logs that once a second, with the address that has the most.
func (l *Listener) noteScarce(now time.Duration) {
	before := time.Duration(l.scarce.Swap(int64(now)))
	if now/time.Second == before/time.Second {
		return
	}
	var most address
	l.mu.Lock()
	for _, a := range l.addresses {
		if a.conns > most.conns {
			most = *a
		}
	}
	l.mu.Unlock()
	l.cfg.Log("all connections are in use", "reason", "all that "+l.cfg.Setting+" allows are open", "limit", l.cfg.Max,
		"from", most.ip.String(), "connections", most.conns)
}

// refuse responds to a connection that is not admitted, and closes it. The response waits a moment for the request:
// some clients take a response for an error that is there before they have sent one. A socket that has unread bytes
// would be reset when it is closed, so they are read.
func (l *Listener) refuse(socket net.Conn) {
	select {
	case l.refusing <- struct{}{}:
	default:
		socket.Close()
		return
	}
	go func() {
		defer func() { <-l.refusing }()
		defer socket.Close()
		var request [4096]byte
		socket.SetReadDeadline(time.Now().Add(requestWait))
		socket.Read(request[:])
		socket.SetDeadline(time.Now().Add(refusalWait))
		socket.Write(l.cfg.Refusal())
		closeWrite(socket)
		io.Copy(io.Discard, io.LimitReader(socket, maxRefused))
	}()
}

// Close accepts no more connections. Open ones stay open.
func (l *Listener) Close() error {
	l.draining.Store(true)
	return l.Listener.Close()
}

// Draining reports whether the listener accepts no more connections, so that each response is to be the last of its
// connection.
func (l *Listener) Draining() bool { return l.draining.Load() }

// Drain accepts no more connections and waits for the requests in flight until ctx ends. It returns how many were cut
// off then. A client does not know of the drain and may be sending: a connection without a request is closed after
// lingerTime, and only its receiving side, so that a request that has arrived gets a response.
func (l *Listener) Drain(ctx context.Context) (cut int) {
	l.Close()
	for began := l.now(); ; {
		now := l.now()
		if l.drainOnce(now, now-began >= lingerTime) {
			return 0
		}
		select {
		case <-time.After(drainInterval):
		case <-ctx.Done():
			return l.abort()
		}
	}
}

// drainOnce closes what need not be waited for, and reports whether no connection is left.
func (l *Listener) drainOnce(now time.Duration, closeIdle bool) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range slices.Backward(l.conns) { // closeNow moves the last one to its place
		switch s := c.state.Load(); {
		case s.kind() == working:
		case s.kind() == idle && closeIdle:
			l.closeIdle(c)
		case s.kind() != idle && c.owner.isAnonymous() && now-s.since() >= lateRequest:
			l.closeNow(c, s)
		}
	}
	return len(l.conns) == 0 && l.stopped.Load()
}

// abort closes all connections and returns how many had a request in flight.
func (l *Listener) abort() (cut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.state.Load().kind() != idle {
			cut++
		}
		c.socket.Close()
	}
	return cut
}
