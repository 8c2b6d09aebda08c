package netlimit

import "time"

// phase is what a connection is doing. These are all the transitions:
//
//	fresh, idle              → receiving      the first byte of a request was read
//	idle, receiving          → parsed         net/http has the head, or found it malformed (idle: all of it was read
//	                                          together with the request before)
//	parsed                   → handling       the handler was called
//	handling                 ⇄ receivingBody  the handler waits for more of the body
//	handling                 ⇄ writing        the handler waits for the client to read the response
//	parsed, handling         → writing        the last response was written, and net/http waits for it to be read
//	handling                 → idle           the response was written
//	handling                 → receiving      it was, and a part of the next request was read before
//	every one                → evicted        the connection was closed in favour of another
type phase uint8

const (
	fresh phase = iota
	idle
	receiving
	parsed
	handling
	receivingBody
	writing
	evicted
)

// inRequest reports whether a request has started whose response is not written yet.
func (p phase) inRequest() bool { return p >= receiving && p <= writing }

// waitsForClient reports whether only the client can end the phase.
func (p phase) waitsForClient() bool { return p != parsed && p != handling && p != evicted }

// isReceiving reports whether a part of a request has arrived.
func (p phase) isReceiving() bool { return p == receiving || p == receivingBody }

// shortWait is how long a connection may wait for a client that has not presented a token while others wait for a slot.
const shortWait = 100 * time.Millisecond

// maxWait is how long a connection may wait for a client that has presented a token.
func maxWait(p phase) time.Duration {
	switch p {
	case fresh:
		return shortWait
	case idle:
		return time.Second
	case writing:
		return 25 * time.Second
	default:
		return 2 * time.Second // for the rest of the request
	}
}

// state is the phase of a connection in the low bits, and in the others when its wait for the client began: when it
// was accepted, when the last response was written, when the current request began to arrive, or when the client read a
// part of the response. One word holds both, so that an eviction fails if anything has happened since it was decided.
type state int64

const phaseBits = 3

func newState(p phase, since time.Duration) state { return state(since)<<phaseBits | state(p) }

func (s state) phase() phase         { return phase(s & (1<<phaseBits - 1)) }
func (s state) since() time.Duration { return time.Duration(s >> phaseBits) }

// overdue reports whether the wait for the client has lasted for limit or longer.
func (s state) overdue(now, limit time.Duration) bool { return now-s.since() >= limit }
