package listen

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// tlsRefusal is what a connection over the limit gets where connections use TLS: the fatal alert internal_error.
// A response would need a handshake, which costs more than a create.
var tlsRefusal = []byte{21, 3, 3, 0, 2, 2, 80}

var errNotTLS = errors.New("the client does not use TLS")

const handshakeTime = 30 * time.Second

// handshake makes the TLS handshake of a new connection. A client that does not use TLS gets a response without it.
func (c *conn) handshake() error {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok || c.secured {
		return nil
	}
	c.SetWriteDeadline(time.Now().Add(handshakeTime)) // net/http has set one to read the first head
	err := secure.Handshake()
	if err == nil {
		c.secured = true
		if !c.enter(idle, c.listener.now()) {
			return net.ErrClosed
		}
		return nil
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok && e.Conn != nil {
		c.notTLS = true
		return errNotTLS // to which net/http responds with 400
	}
	if e, ok := errors.AsType[*net.OpError](err); err != io.EOF && !(ok && (e.Op == "read" || e.Op == "write")) {
		c.listener.cfg.Log("TLS handshake failed", "from", c.RemoteAddr().String(), "reason", err.Error())
	}
	return io.EOF // to which net/http does not respond
}

// output is what responses are written to.
func (c *conn) output() net.Conn {
	if c.notTLS {
		return c.socket
	}
	return c.Conn
}
