// Package framing checks the bytes that a connection reads for strict HTTP/1 framing.
//
// Where two readers of the same bytes could disagree about where a request ends, a request can be smuggled past
// a proxy inside another one. net/http is lenient there, as it may be. A Checker is strict: lines end with CRLF,
// no header or trailer is folded, a body has one Content-Length or a Transfer-Encoding, never both, and chunks follow
// the syntax of RFC 9112.
package framing

import (
	"bytes"
	"strconv"
)

// Checker follows the requests on one connection. The zero value is ready for the first one.
type Checker struct {
	line   []byte // the start of a line whose end has not been received
	next   kind   // of that line
	data   int64  // bytes of a body or a chunk that precede that line
	length int64  // value of Content-Length
	sized  bool   // the head has a Content-Length
	coded  bool   // the head has a Transfer-Encoding, which can only be chunked: net/http refuses any other
	broken bool
}

// kind is the kind of a line.
type kind uint8

const (
	requestLine kind = iota // or an empty line before it
	header                  // or the end of the head
	chunkSize
	chunkEnd // the CRLF after the data of a chunk
	trailer  // or the end of a chunked body
)

// Check takes the next bytes and returns how many of them to pass on. It is fewer than all only when they are
// ambiguous; what is passed on then never completes the ambiguous head or body, and every further Check returns 0.
func (c *Checker) Check(b []byte) int {
	if c.broken {
		return 0
	}
	for i := 0; i < len(b); {
		if c.data > 0 {
			n := min(c.data, int64(len(b)-i))
			c.data -= n
			i += int(n)
			continue
		}
		end := bytes.IndexByte(b[i:], '\n')
		if end < 0 {
			c.line = append(c.line, b[i:]...) // bounded: net/http limits the size of a head, chunk line and trailer
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
func (c *Checker) InRequest() bool { return c.next != requestLine || c.data > 0 || len(c.line) > 0 }

// checkLine takes a line outside of a body or chunk, without its LF, and reports whether it is unambiguous.
func (c *Checker) checkLine(line []byte) (ok bool) {
	n := len(line) - 1
	if n < 0 || line[n] != '\r' {
		return false
	}
	line = line[:n]
	switch c.next {
	case requestLine:
		if n > 0 { // empty lines between requests are allowed
			c.next = header
		}
		return true
	case header:
		if n == 0 {
			c.endHead()
			return true
		}
		return c.checkHeader(line)
	case chunkSize:
		c.data, ok = parseChunkSize(line)
		c.next = chunkEnd
		if c.data == 0 {
			c.next = trailer
		}
		return ok
	case chunkEnd:
		c.next = chunkSize
		return n == 0
	default:
		if n == 0 {
			c.next = requestLine
			return true
		}
		return !isFolded(line) && bytes.IndexByte(line, '\r') < 0
	}
}

// endHead is called at the end of the headers and expects the body next.
func (c *Checker) endHead() {
	c.next, c.data = requestLine, c.length
	if c.coded {
		c.next = chunkSize
	}
	c.sized, c.coded, c.length = false, false, 0
}

func (c *Checker) checkHeader(line []byte) bool {
	if isFolded(line) {
		return false
	}
	switch line[0] {
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

func isFolded(line []byte) bool { return line[0] == ' ' || line[0] == '\t' }

func headerValue(line []byte, name string) (value []byte, ok bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.Trim(line[len(name)+1:], " \t"), true
}

// decimal parses digits that fit in an int64, without a sign, and without leading zeros, which some parsers read as
// octal.
func decimal(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 18 || len(text) > 1 && text[0] == '0' {
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

// parseChunkSize parses the line before a chunk: hexadecimal digits that fit in an int64, and extensions.
func parseChunkSize(line []byte) (n int64, ok bool) {
	size, _, _ := bytes.Cut(line, []byte(";"))
	parsed, err := strconv.ParseUint(string(size), 16, 63)
	return int64(parsed), err == nil && bytes.IndexByte(line, '\r') < 0
}
