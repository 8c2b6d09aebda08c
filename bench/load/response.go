//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// head is the part of a response's head that is needed.
type head struct {
	status int
	size   int // of the head itself
	body   int // of the body; chunked if it is not known before the end
}

const chunked = -1

var (
	errNoLength = errors.New("a response without Content-Length or chunks")
	errTooMany  = errors.New("more bytes than one response")
)

var (
	endOfHead = []byte("\r\n\r\n")
	newline   = []byte("\r\n")
	lengthIs  = []byte("content-length:")
	inChunks  = []byte("transfer-encoding: chunked")
)

// parseHead reads the head of a response. It reports false while the head is incomplete.
func parseHead(b []byte) (h head, complete bool, err error) {
	end := bytes.Index(b, endOfHead)
	if end < 0 {
		return h, false, nil
	}
	const at = len("HTTP/1.1 ")
	if end < at+3 || !bytes.HasPrefix(b, []byte("HTTP/1.1 ")) {
		return h, false, fmt.Errorf("not an HTTP/1.1 response: %.32q", b)
	}
	if h.status, err = digits(b[at : at+3]); err != nil {
		return h, false, err
	}
	h.size = end + len(endOfHead)
	if h.status == http.StatusNoContent {
		return h, true, nil
	}
	for rest := b[at:end]; ; {
		i := bytes.Index(rest, newline)
		if i < 0 {
			return h, false, errNoLength
		}
		rest = rest[i+len(newline):]
		if hasPrefix(rest, lengthIs) {
			value, _, _ := bytes.Cut(rest[len(lengthIs):], newline)
			h.body, err = digits(bytes.TrimSpace(value))
			return h, err == nil, err
		}
		if hasPrefix(rest, inChunks) {
			h.body = chunked
			return h, true, nil
		}
	}
}

// chunks reads a body in chunks without extensions and trailers.
type chunks struct {
	body int  // bytes of all chunks so far
	size int  // of the chunk whose size is being read
	left int  // bytes of the current chunk, with the line break after it
	last bool // it is the empty one that ends the body
}

// read adds received bytes and reports whether they complete the body.
func (c *chunks) read(b []byte) (complete bool, err error) {
	for len(b) > 0 && !(c.last && c.left == 0) {
		if c.left > 0 {
			n := min(c.left, len(b))
			c.left, b = c.left-n, b[n:]
			continue
		}
		switch d := b[0] | 0x20; {
		case b[0] == '\n':
			c.last, c.body, c.left, c.size = c.size == 0, c.body+c.size, c.size+len(newline), 0
		case b[0] == '\r':
		case d >= '0' && d <= '9':
			c.size = c.size<<4 + int(d-'0')
		case d >= 'a' && d <= 'f':
			c.size = c.size<<4 + int(d-'a') + 10
		default:
			return false, fmt.Errorf("not the size of a chunk: %.32q", b)
		}
		b = b[1:]
	}
	if len(b) > 0 {
		return false, errTooMany
	}
	return c.last && c.left == 0, nil
}

// hasPrefix compares without regard to case.
func hasPrefix(b, prefix []byte) bool {
	return len(b) >= len(prefix) && b[0]|0x20 == prefix[0] && bytes.EqualFold(b[:len(prefix)], prefix)
}

func digits(b []byte) (int, error) {
	n, err := strconv.ParseUint(string(b), 10, 31)
	return int(n), err
}
