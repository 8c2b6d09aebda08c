package httpapi

import (
	"fmt"

	"plantstore/internal/rate"
)

const maxLimited = 10_000 // tokens whose requests are counted

// limitRate counts a request against the rate of its token. Headers report what remains of it, as in
// draft-ietf-httpapi-ratelimit-headers-10: r requests may follow at once, and one more in t seconds. Each process
// counts for itself: where several serve one database, a token may use its rate on each.
func (a *API) limitRate(x *exchange) error {
	l := x.token.Rate
	if l.Count == 0 {
		l = a.cfg.Rate
	}
	if l.Count == 0 {
		return nil
	}
	s := a.rates.Take(x.token.Hash, l)
	h, wait := x.Header(), rate.Seconds(s.Wait)
	h["RateLimit-Policy"] = []string{fmt.Sprintf(`"token";q=%d;w=%d`, l.Burst, rate.Seconds(l.Window()))}
	h["RateLimit"] = []string{fmt.Sprintf(`"token";r=%d;t=%d`, s.Left, wait)}
	if !s.OK {
		why := failf(errRate, "the token exceeded its rate of %s with a burst of %d", l, l.Burst)
		return &rate.Exceeded{Why: why, Wait: s.Wait}
	}
	return nil
}
