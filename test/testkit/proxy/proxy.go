// Package proxy is a TCP proxy for tests that delays, drops or cuts the traffic between a client and a server.
package proxy

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Direction is the direction of a chunk of bytes.
type Direction int

const (
	Requests Direction = iota // from the client to the server
	Replies                   // from the server to the client
)

// Chunk is what one read of a connection returned.
type Chunk struct {
	Data           []byte // valid until the fault returns
	Direction      Direction
	Client, Server *net.TCPConn
	Removed        <-chan struct{} // closed when another fault is set
}

// Fault decides what happens to a chunk: it returns the bytes to pass on, and false to close the connection
// after them.
type Fault func(c *Chunk) (pass []byte, open bool)

// Proxy listens at Address and passes everything on until a fault is set.
type Proxy struct {
	Address string
	server  string

	refuse atomic.Int64 // how many of the next connections to close; negative: all

	mu      sync.Mutex
	fault   Fault
	removed chan struct{}
	links   []*link
}

// link is a connection of a client and the connection to the server that belongs to it.
type link struct {
	client, server *net.TCPConn
	frozen         atomic.Bool
}

// New starts a proxy in front of the server at an address and stops it when the test ends.
func New(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: l.Addr().String(), server: server, removed: make(chan struct{})}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client.(*net.TCPConn))
		}
	}()
	t.Cleanup(func() {
		l.Close()
		p.Set(nil)
		for _, l := range p.open() {
			l.client.Close()
			l.server.Close()
		}
	})
	return p
}

// Set replaces the fault, for the connections that are open too. Nil is no fault.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.removed)
	p.fault, p.removed = f, make(chan struct{})
}

// Refuse closes the next n connections when they are accepted, or all of them if n is negative.
func (p *Proxy) Refuse(n int) { p.refuse.Store(int64(n)) }

// Cut closes the connections of clients. The server still executes the requests that it has received.
func (p *Proxy) Cut() {
	for _, l := range p.open() {
		l.client.Close()
	}
}

// Reset is Cut with a TCP reset.
func (p *Proxy) Reset() {
	for _, l := range p.open() {
		l.client.SetLinger(0)
		l.client.Close()
	}
}

// Freeze makes the connections that are open pass nothing from now on, without closing them.
func (p *Proxy) Freeze() {
	for _, l := range p.open() {
		l.frozen.Store(true)
	}
}

func (p *Proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.links)
}

func (p *Proxy) serve(client *net.TCPConn) {
	if n := p.refuse.Load(); n < 0 || n > 0 && p.refuse.CompareAndSwap(n, n-1) {
		client.Close()
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn)}
	p.mu.Lock()
	p.links = append(p.links, l)
	p.mu.Unlock()
	go func() {
		p.copy(l, Replies, l.client, l.server)
		client.Close()
		server.Close()
	}()
	p.copy(l, Requests, l.server, l.client)
	if !l.frozen.Load() {
		l.server.CloseWrite()
	}
}

// copy passes chunks on until a connection fails or a fault ends it.
func (p *Proxy) copy(l *link, d Direction, to, from *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		fault, removed := p.fault, p.removed
		p.mu.Unlock()
		pass, open := buf[:n], true
		if fault != nil && !l.frozen.Load() {
			pass, open = fault(&Chunk{buf[:n], d, l.client, l.server, removed})
		}
		if l.frozen.Load() {
			continue
		}
		if _, err := to.Write(pass); err != nil {
			return
		}
		if !open {
			l.client.Close()
			return
		}
	}
}

// Drop loses everything in one direction. A connection that has lost bytes is closed when the fault is removed.
func Drop(d Direction) Fault {
	return only(d, func(c *Chunk) ([]byte, bool) {
		go func(client net.Conn, removed <-chan struct{}) {
			<-removed
			client.Close()
		}(c.Client, c.Removed)
		return nil, true
	})
}

// Close closes every connection in place of passing on what it carries in one direction.
func Close(d Direction) Fault {
	return only(d, func(*Chunk) ([]byte, bool) { return nil, false })
}

// Reset is Close with a TCP reset for the client. Connections without traffic need the method Reset.
func Reset(d Direction) Fault {
	return only(d, func(c *Chunk) ([]byte, bool) {
		c.Client.SetLinger(0)
		return nil, false
	})
}

// Delay delays every chunk by a time that differs from delay by up to jitter.
func Delay(d Direction, delay, jitter time.Duration) Fault {
	return only(d, func(c *Chunk) ([]byte, bool) {
		select {
		case <-time.After(delay - jitter + rand.N(2*jitter+1)):
		case <-c.Removed:
		}
		return c.Data, true
	})
}

// Limit closes each connection after so many bytes.
func Limit(d Direction, bytes int) Fault {
	var mu sync.Mutex
	left := map[*net.TCPConn]int{}
	return only(d, func(c *Chunk) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := left[c.Client]; !ok {
			left[c.Client] = bytes
		}
		pass := c.Data[:min(len(c.Data), left[c.Client])]
		left[c.Client] -= len(pass)
		return pass, left[c.Client] > 0
	})
}

// Once is a fault of the first chunk in one direction only.
func Once(d Direction, f Fault) Fault {
	var used atomic.Bool
	return only(d, func(c *Chunk) ([]byte, bool) {
		if used.Swap(true) {
			return c.Data, true
		}
		return f(c)
	})
}

func only(d Direction, f Fault) Fault {
	return func(c *Chunk) ([]byte, bool) {
		if c.Direction != d {
			return c.Data, true
		}
		return f(c)
	}
}
