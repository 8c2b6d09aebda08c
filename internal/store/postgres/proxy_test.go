package postgres

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a store and its server and spoils what passes.
type proxy struct {
	address string
	server  string

	mu               sync.Mutex
	fault            fault
	hangs            int // how often it has hung
	clients, servers []net.Conn

	goOn chan struct{} // a test closes it to let a delayed request go on
	late chan []byte   // what the server answered to that
}

type fault int

const (
	none         fault = iota
	cutRequest         // once: a request is not passed on, and the connection ends
	cutReply           // once: a request is passed on, and the connection ends before the reply
	cutReplyGone       // as cutReply, and from then on the server can't be reached
	cutEndGone         // as cutReplyGone, but only the end of the reply, which tells of the commit, is lost
	delayRequest       // once: the connection ends, and the request reaches the server when goOn is closed
	hang               // nothing passes, and no connection ends; those made before are of no use afterwards
	goneOnce           // once: no connection can be made
	gone               // no connection can be made
)

func newProxy(t *testing.T, port int) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		address: l.Addr().String(), server: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		goOn: make(chan struct{}), late: make(chan []byte, 1),
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range append(p.clients, p.servers...) {
			c.Close()
		}
	})
	return p
}

func (p *proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	if f == hang {
		p.hangs++
	}
}

// cut ends the connections of clients; the server does not notice before it answers.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients {
		c.Close()
	}
}

// take returns the fault and, where it strikes once, ends it.
func (p *proxy) take(faults ...fault) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range faults {
		if p.fault != f {
			continue
		}
		switch f {
		case cutRequest, cutReply, delayRequest, goneOnce:
			p.fault = none
		case cutReplyGone, cutEndGone:
			p.fault = gone
		}
		return f
	}
	return none
}

// hung reports whether a connection that was made after so many hangs passes nothing any more.
func (p *proxy) hung(before int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault == hang || p.hangs > before
}

const readyForQuery = 6 // bytes: the last message of a reply

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if p.take(gone, goneOnce) != none {
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.clients, p.servers = append(p.clients, client), append(p.servers, server)
	hangs := p.hangs
	p.mu.Unlock()
	var delayed atomic.Bool
	go func() { // replies
		defer client.Close()
		defer server.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil || p.take(cutReply, cutReplyGone) != none {
				return
			}
			if delayed.Load() {
				p.late <- buf[:n]
				return
			}
			if p.hung(hangs) {
				continue
			}
			if p.take(cutEndGone) == cutEndGone {
				client.Write(buf[:n-readyForQuery])
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return // the server's side stays open until it answers
		}
		if p.hung(hangs) {
			continue
		}
		switch p.take(cutRequest, delayRequest) {
		case cutRequest:
			return
		case delayRequest:
			client.Close()
			<-p.goOn
			delayed.Store(true)
			server.Write(buf[:n])
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
