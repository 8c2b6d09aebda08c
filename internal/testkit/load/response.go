//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
)

// head is the part of a response's head that is needed.
type head struct {
	status int
	length int // of head and body together
	body   int // of the body
}

var errNoLength = errors.New("a response without Content-Length")

var (
	endOfHead = []byte("\r\n\r\n")
	newline   = []byte("\r\n")
	lengthIs  = []byte("content-length:")
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
	if h.status == http.StatusNoContent {
		h.length = end + len(endOfHead)
		return h, true, nil
	}
	for rest := b[at:end]; ; {
		i := bytes.Index(rest, newline)
		if i < 0 {
			return h, false, errNoLength
		}
		rest = rest[i+len(newline):]
		if len(rest) > len(lengthIs) && (rest[0]|0x20) == 'c' && bytes.EqualFold(rest[:len(lengthIs)], lengthIs) {
			value, _, _ := bytes.Cut(rest[len(lengthIs):], newline)
			h.body, err = digits(bytes.TrimSpace(value))
			h.length = end + len(endOfHead) + h.body
			return h, err == nil, err
		}
	}
}

func digits(b []byte) (n int, err error) {
	if len(b) == 0 || len(b) > 9 {
		return 0, fmt.Errorf("not a number: %.32q", b)
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("not a number: %.32q", b)
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}
