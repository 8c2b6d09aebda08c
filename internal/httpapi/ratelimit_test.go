package httpapi

import (
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

// A token's own rate takes precedence over that of the service. A request beyond it is not executed.
func TestRateLimit(t *testing.T) {
	service := rate.Limit{Count: 1, Per: time.Second, Burst: 2}
	own := rate.Limit{Count: 6, Per: time.Minute, Burst: 3}
	for _, test := range []struct {
		name                    string
		service, own            rate.Limit
		allowed                 int
		policy, left, none, why string
		wait                    string
	}{
		{"of the service", service, rate.Limit{}, 2, `"token";q=2;w=2`, `"token";r=1;t=1`, `"token";r=0;t=1`,
			"the token exceeded its rate of 1/s with a burst of 2; retry in 1 s", "1"},
		{"of the token", service, own, 3, `"token";q=3;w=30`, `"token";r=2;t=10`, `"token";r=0;t=10`,
			"the token exceeded its rate of 6/m with a burst of 3; retry in 10 s", "10"},
		{"none", rate.Limit{}, rate.Limit{}, 10, "", "", "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				auth := authenticator(func(header string) (*token.Token, error) {
					found, err := bearers(header)
					found.Rate = test.own
					return found, err
				})
				s := ferns()
				a, _ := newAPI(Config{Rate: test.service}, Dependencies{Auth: auth, Reader: s})
				list := func(header, left string) {
					t.Helper()
					w := send(a, "GET", "/plants", nil, "Authorization", header)
					wantResponse(t, w, 200, "[]")
					wantHeaders(t, w, "RateLimit-Policy", test.policy, "RateLimit", left, "Retry-After", "")
				}
				list("first", test.left)
				for n := range test.allowed {
					if w := send(a, "GET", "/plants", nil, "Authorization", "second"); w.Code != 200 {
						t.Errorf("request %d: %d", n, w.Code)
					}
				}
				if test.policy == "" {
					return
				}
				s.calls = nil
				w := send(a, "GET", "/plants", nil, "Authorization", "second")
				wantError(t, w, 42901, test.why)
				wantHeaders(t, w, "Retry-After", test.wait, "RateLimit-Policy", test.policy, "RateLimit", test.none)
				wantCalls(t, s)
				list("third", test.left)
				time.Sleep(60 * time.Second)
				list("second", test.left)
			})
		})
	}
}
