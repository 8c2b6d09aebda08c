package httpapi

import (
	"cmp"
	"fmt"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/share"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

const maxLimited = 10_000 // tokens whose requests are counted

// statusRate is the limit of GET /token for each token. These requests do not use up the rate of the token.
var statusRate = rate.Limit{Count: 5, Per: time.Second, Burst: 10}

// limitRate counts a request against the rate of its token, or against statusRate. Headers report what remains of it,
// as in draft-ietf-httpapi-ratelimit-headers-10: r requests may follow at once, and one more in t seconds. Each process
// counts for itself: where several serve one database, a token may use its rate on each.
func (a *API) limitRate(x *exchange, unmetered bool) error {
	policy, used, l := "token", a.rates, cmp.Or(x.token.Rate, a.cfg.Rate)
	if unmetered {
		policy, used, l = "status", a.statusRates, statusRate
	}
	if l.Count == 0 {
		return nil
	}
	s := used.Take(x.token.Hash, l)
	h, wait := x.Header(), rate.Seconds(s.Wait)
	h["RateLimit-Policy"] = []string{fmt.Sprintf(`%q;q=%d;w=%d`, policy, l.Burst, rate.Seconds(l.Window()))}
	h["RateLimit"] = []string{fmt.Sprintf(`%q;r=%d;t=%d`, policy, s.Left, wait)}
	if !s.OK {
		why := Failf(errRate, "the token exceeded its rate of %s with a burst of %d", l, l.Burst)
		if unmetered {
			why = Failf(errRate, "the token exceeded the rate of this path, %s with a burst of %d", l, l.Burst)
		}
		return &rate.Exceeded{Why: why, Wait: s.Wait}
	}
	return nil
}

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
