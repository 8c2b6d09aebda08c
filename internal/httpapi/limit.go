package httpapi

import (
	"fmt"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

const maxLimited = 10_000 // tokens whose use is counted

// limit counts a request against the rate of its token, and tells the client what is left of it
// (draft-ietf-httpapi-ratelimit-headers-10): as many as r may follow at once, and in t seconds one more. It is
// the process that counts: where several serve one database, a token may use its rate on each.
func (a *API) limit(x *exchange, t *token.Token) error {
	l := t.Rate
	if l.Count == 0 {
		l = a.rate
	}
	if l.Count == 0 {
		return nil
	}
	s := a.used.Take(t.Hash, l)
	h, wait := x.Header(), rate.Seconds(s.Wait)
	h["RateLimit-Policy"] = []string{fmt.Sprintf(`"token";q=%d;w=%d`, l.Burst, rate.Seconds(l.Window()))}
	h["RateLimit"] = []string{fmt.Sprintf(`"token";r=%d;t=%d`, s.Left, wait)}
	if !s.OK {
		return &rate.Exceeded{Why: fmt.Errorf("%w of %s, with a burst of %d", errRate, l, l.Burst), Wait: s.Wait}
	}
	return nil
}
