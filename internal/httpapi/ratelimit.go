package httpapi

import (
	"cmp"
	"fmt"
	"time"

	"plantstore/internal/rate"
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
