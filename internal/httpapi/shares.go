package httpapi

import (
	"plantstore/internal/share"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

// No token may use up what others need: the queues of creates and of edits, and the memory of large bodies and pages.

const small = 4 << 10 // bytes of memory that every request may use without being counted

// enqueue claims a slot of a queue for the request, so that while several tokens have connections none fills it.
// The caller releases the claim.
func (x *exchange) enqueue(queue *share.Pool[token.Hash]) (share.Claim[token.Hash], error) {
	claim := queue.Claim(x.token.Hash)
	if !claim.RaiseTo(1) {
		return claim, Failf(storage.ErrBusy, "the token already has its share of the waiting writes; retry later")
	}
	return claim, nil
}

// reserve counts n bytes of memory until the exchange ends. A body that never ends and a page that the client does
// not read stay for up to a minute, and must not exclude other tokens meanwhile.
func (x *exchange) reserve(n int) error {
	if n > small && !x.memory.RaiseTo(int64(n)) {
		return Failf(storage.ErrBusy, "the memory for large bodies, or the token's share of it, is in use; retry later")
	}
	return nil
}
