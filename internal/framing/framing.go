// Package framing checks the bytes that a connection reads for strict HTTP/1 framing.
//
// Where two readers of the same bytes could disagree about where a request ends, a request can be smuggled past
// a proxy inside another one. net/http is lenient there, as it may be. A Checker is strict: lines end with CRLF,
// no header is folded, and a body has one Content-Length or a Transfer-Encoding, never both.
package framing

import "bytes"

// Checker follows the requests on one connection. The zero value is ready for the first one.
type Checker struct {
	line   []byte // the start of a line whose end has not been received
	body   int64  // bytes left of a body
	inHead bool   // the request line has been received, the end of the headers has not
	length int64  // value of Content-Length
	sized  bool   // the head has a Content-Length
	coded  bool   // the head has a Transfer-Encoding

	unchecked bool // a body with a Transfer-Encoding: only net/http finds its end, and the connection ends there
	broken    bool
}

// Check takes the next bytes and returns how many of them to pass on. It is fewer than all only when they are
// ambiguous; what is passed on then never completes the ambiguous head, and every further Check returns 0.
func (c *Checker) Check(b []byte) int {
	if c.broken {
		return 0
	}
	for i := 0; i < len(b) && !c.unchecked; {
		if c.body > 0 {
			n := min(c.body, int64(len(b)-i))
			c.body -= n
			i += int(n)
			continue
		}
		end := bytes.IndexByte(b[i:], '\n')
		if end < 0 {
			c.line = append(c.line, b[i:]...) // bounded: net/http reads no more than MaxHeaderBytes of a head
			break
		}
		line := b[i : i+end]
		if len(c.line) > 0 {
			line = append(c.line, line...)
			c.line = nil
		}
		if c.broken = !c.checkLine(line); c.broken {
			return i
		}
		i += end + 1
	}
	return len(b)
}

// Broken reports whether ambiguous framing was found.
func (c *Checker) Broken() bool { return c.broken }

// InRequest reports whether a request has started whose end has not been received.
func (c *Checker) InRequest() bool { return c.inHead || c.body > 0 || len(c.line) > 0 }

// checkLine takes a line of a head, without its LF, and reports whether it is unambiguous.
func (c *Checker) checkLine(line []byte) bool {
	n := len(line) - 1
	if n < 0 || line[n] != '\r' {
		return false
	}
	line = line[:n]
	if !c.inHead {
		c.inHead = n > 0 // empty lines between requests are allowed
		return true
	}
	if n == 0 {
		c.body, c.unchecked = c.length, c.coded
		c.inHead, c.sized, c.coded, c.length = false, false, false, 0
		return true
	}
	switch line[0] {
	case ' ', '\t':
		return false
	case 'c', 'C':
		if value, ok := headerValue(line, "content-length"); ok {
			repeated := c.sized || c.coded
			c.length, c.sized = decimal(value)
			return c.sized && !repeated
		}
	case 't', 'T':
		if _, ok := headerValue(line, "transfer-encoding"); ok {
			c.coded = true
			return !c.sized
		}
	}
	return true
}

func headerValue(line []byte, name string) (value []byte, ok bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.Trim(line[len(name)+1:], " \t"), true
}

// decimal parses digits that fit in an int64, without a sign.
func decimal(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}
