package httpapi

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/token"
)

// A token's own rate takes precedence over that of the service.
func TestRateLimit(t *testing.T) {
	parse := func(text string, burst int64) rate.Limit {
		l, err := rate.Parse(text, burst)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, test := range []struct {
		name         string
		service, own rate.Limit
		allowed      int
		policy, left string
	}{
		{"of the service", parse("1/s", 2), rate.Limit{}, 2, `"token";q=2;w=2`, `"token";r=1;t=1`},
		{"of the token", parse("1/s", 2), parse("6/m", 3), 3, `"token";q=3;w=30`, `"token";r=2;t=10`},
		{"none", rate.Limit{}, rate.Limit{}, 10, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				auth := authenticator(func(header string) (*token.Token, error) {
					found, err := bearers(header)
					found.Rate = test.own
					return found, err
				})
				a, _ := newAPI(Config{Rate: test.service}, Dependencies{Auth: auth, Reader: ferns()})
				list := func(header string) int {
					w := send(a, "GET", "/plants", nil, "Authorization", header)
					if w.Code == 200 {
						wantHeaders(t, w, "RateLimit-Policy", test.policy, "Retry-After", "")
					}
					return w.Code
				}
				wantHeaders(t, send(a, "GET", "/plants", nil, "Authorization", "first"), "RateLimit", test.left)
				for n := range test.allowed {
					if status := list("second"); status != 200 {
						t.Errorf("request %d: %d", n, status)
					}
				}
				if test.policy == "" {
					return
				}
				if status := list("second"); status != 429 {
					t.Errorf("a request over the rate: %d", status)
				}
				if status := list("third"); status != 200 {
					t.Errorf("a request of another token: %d", status)
				}
				time.Sleep(10 * time.Second)
				if status := list("second"); status != 200 {
					t.Errorf("a request after the wait: %d", status)
				}
			})
		})
	}
}

func TestRateLimitResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := rate.Parse("6/m", 1)
		if err != nil {
			t.Fatal(err)
		}
		s := ferns()
		a, _ := newAPI(Config{Rate: limit}, Dependencies{Reader: s})
		send(a, "GET", "/plants", nil)
		w := send(a, "GET", "/plants", nil)
		why := errors.New("the token exceeded its rate of 6/m with a burst of 1")
		wantError(t, w, 42901, (&rate.Exceeded{Why: why, Wait: 10 * time.Second}).Error())
		wantHeaders(t, w, "Retry-After", "10", "RateLimit-Policy", `"token";q=1;w=10`, "RateLimit", `"token";r=0;t=10`)
		wantCalls(t, s, "List main start 101")
	})
}
