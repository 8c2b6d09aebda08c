package server

import (
	"bytes"
	"errors"
)

var errFraming = errors.New("the request can be read in two ways")

// framing follows what comes in on a connection, from request to request, and stops it where two readers
// could differ about where a request ends: that is how a request is smuggled past a proxy inside another.
// The HTTP library is lenient there, as it may be. It is stricter here: lines end with CRLF, no header is
// folded, and a body has one Content-Length or a Transfer-Encoding, never both.
type framing struct {
	part   []byte // the begin of a line whose end has not come yet
	body   int64  // bytes that are left of a body
	begun  bool   // the first line of a request has been read, and its headers follow
	sized  bool   // by a Content-Length
	coded  bool   // by a Transfer-Encoding
	length int64  // what the Content-Length says

	last   bool // the end of this request is for the library to find, and the connection ends there
	broken bool // there was a fault: nothing more is good
}

// follow takes the next bytes and returns how many of them are good. They are all of them, unless there is a fault:
// what comes before it is for the library to answer, and never ends the head that is at fault.
func (f *framing) follow(b []byte) int {
	for i := 0; i < len(b) && !f.last; {
		if f.body > 0 {
			n := min(f.body, int64(len(b)-i))
			f.body -= n
			i += int(n)
			continue
		}
		end := bytes.IndexByte(b[i:], '\n')
		if end < 0 {
			f.part = append(f.part, b[i:]...) // the library reads no more than maxHeader
			break
		}
		line := b[i : i+end]
		if len(f.part) > 0 {
			line = append(f.part, line...)
			f.part = nil
		}
		if f.broken = !f.line(line); f.broken {
			return i
		}
		i += end + 1
	}
	return len(b)
}

// within reports whether a request has begun whose end has not come.
func (f *framing) within() bool { return f.begun || f.body > 0 || len(f.part) > 0 }

// line takes a line of a head, without its LF, and reports whether it has one meaning.
func (f *framing) line(line []byte) bool {
	n := len(line) - 1
	if n < 0 || line[n] != '\r' {
		return false
	}
	line = line[:n]
	if !f.begun {
		f.begun = n > 0
		return true
	}
	if n == 0 {
		f.body, f.last = f.length, f.coded
		f.begun, f.sized, f.coded, f.length = false, false, false, 0
		return true
	}
	switch line[0] {
	case ' ', '\t':
		return false
	case 'c', 'C':
		if value, ok := valueOf(line, "content-length"); ok {
			again := f.sized || f.coded
			f.length, f.sized = decimal(value)
			return f.sized && !again
		}
	case 't', 'T':
		if _, ok := valueOf(line, "transfer-encoding"); ok {
			f.coded = true
			return !f.sized
		}
	}
	return true
}

func valueOf(line []byte, name string) (value []byte, ok bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.Trim(line[len(name)+1:], " \t"), true
}

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
