package listen

import (
	"bytes"
	"strconv"
)

// framing checks the bytes that a connection reads for strict HTTP/1 framing.
//
// Where two readers of the same bytes could disagree about where a request ends, a request can be smuggled past
// a proxy inside another one. net/http is lenient there, as it may be. This is strict: lines end with CRLF, no header
// or trailer is folded, a body has one Content-Length or a Transfer-Encoding, never both, and chunks follow the syntax
// of RFC 9112.
//
// The zero value is ready for the first request of a connection.
type framing struct {
	line   []byte   // the start of a line whose end has not been received
	next   lineKind // of that line
	data   int64    // bytes of a body or a chunk that precede that line
	length int64    // value of Content-Length
	sized  bool     // the head has a Content-Length
	coded  bool     // the head has a Transfer-Encoding, which can only be chunked: net/http refuses any other
	broken bool     // ambiguous framing was found
	slow   bool     // the last request that began may take long: see readInBackground
}

type lineKind uint8

const (
	requestLine lineKind = iota // or an empty line before it
	header                      // or the end of the head
	chunkSize
	chunkEnd // the CRLF after the data of a chunk
	trailer  // or the end of a chunked body
)

// check takes the next bytes and returns how many of them to pass on. It is fewer than all only when they are
// ambiguous; what is passed on then never completes the ambiguous head or body, and every further check returns 0.
func (f *framing) check(b []byte) int {
	if f.broken {
		return 0
	}
	for i := 0; i < len(b); {
		if f.data > 0 {
			n := min(f.data, int64(len(b)-i))
			f.data -= n
			i += int(n)
			continue
		}
		end := bytes.IndexByte(b[i:], '\n')
		if end < 0 {
			f.line = append(f.line, b[i:]...) // bounded: net/http limits the size of a head, chunk line and trailer
			break
		}
		line := b[i : i+end]
		if len(f.line) > 0 {
			line = append(f.line, line...)
			f.line = nil
		}
		if f.broken = !f.checkLine(line); f.broken {
			return i
		}
		i += end + 1
	}
	return len(b)
}

// inRequest reports whether a request has started whose end has not been received.
func (f *framing) inRequest() bool { return f.next != requestLine || f.data > 0 || len(f.line) > 0 }

// checkLine takes a line outside of a body or chunk, without its LF, and reports whether it is unambiguous.
func (f *framing) checkLine(line []byte) (ok bool) {
	n := len(line) - 1
	if n < 0 || line[n] != '\r' {
		return false
	}
	line = line[:n]
	switch f.next {
	case requestLine:
		if n > 0 { // empty lines between requests are allowed
			f.next, f.slow = header, bytes.HasPrefix(line, []byte("GET ")) && bytes.IndexByte(line, '?') > 0
		}
		return true
	case header:
		if n == 0 {
			f.endHead()
			return true
		}
		return f.checkHeader(line)
	case chunkSize:
		f.data, ok = parseChunkSize(line)
		f.next = chunkEnd
		if f.data == 0 {
			f.next = trailer
		}
		return ok
	case chunkEnd:
		f.next = chunkSize
		return n == 0
	default:
		if n == 0 {
			f.next = requestLine
			return true
		}
		return !isFolded(line) && bytes.IndexByte(line, '\r') < 0
	}
}

// endHead is called at the end of the headers and expects the body next.
func (f *framing) endHead() {
	f.next, f.data = requestLine, f.length
	if f.coded {
		f.next = chunkSize
	}
	f.sized, f.coded, f.length = false, false, 0
}

func (f *framing) checkHeader(line []byte) bool {
	if isFolded(line) {
		return false
	}
	switch line[0] {
	case 'c', 'C':
		if value, ok := headerValue(line, "content-length"); ok {
			repeated := f.sized || f.coded
			f.length, f.sized = decimal(value)
			return f.sized && !repeated
		}
	case 'p', 'P':
		if _, ok := headerValue(line, "prefer"); ok {
			f.slow = true
		}
	case 't', 'T':
		if _, ok := headerValue(line, "transfer-encoding"); ok {
			f.coded = true
			return !f.sized
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

// decimal parses at most 18 digits, without a sign, and without leading zeros, which some parsers read as
// octal.
func decimal(text []byte) (n int64, ok bool) {
	if len(text) > 18 || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	parsed, err := strconv.ParseUint(string(text), 10, 63)
	return int64(parsed), err == nil
}

// parseChunkSize parses the line before a chunk: hexadecimal digits that fit in an int64, and extensions.
func parseChunkSize(line []byte) (n int64, ok bool) {
	size, _, _ := bytes.Cut(line, []byte(";"))
	parsed, err := strconv.ParseUint(string(size), 16, 63)
	return int64(parsed), err == nil && bytes.IndexByte(line, '\r') < 0
}
