package access

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// wantLimited checks the error number, Retry-After and RateLimit of a 429.
func wantLimited(t *testing.T, what string, a testkit.Response, number, longest int) {
	t.Helper()
	testkit.WantError(t, what, a, number)
	wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || wait < 1 || wait > longest {
		t.Errorf("%s: Retry-After %q, want 1 to %d", what, a.Header.Get("Retry-After"), longest)
	}
	if left := a.Header.Get("RateLimit"); number == 42901 && left != fmt.Sprintf(`"token";r=0;t=%d`, wait) {
		t.Errorf("%s: RateLimit %s, want r=0 and the time of Retry-After, %d", what, left, wait)
	}
}

// After its burst, every request of a token is refused before its body is read, and has no effect. Other tokens are not
// affected, and responses to tokens without a rate have no headers about it.
func TestRate(t *testing.T) {
	t.Parallel()
	testkit.OnEachDatabase(t, func(t *testing.T, db string) {
		p := testkit.Start(t, db)
		limited := testkit.IssueToken(t, db, "--name", "limited", "--rate", "1/h", "--burst", "4")
		as := "Authorization: Bearer " + limited
		for left, a := range []testkit.Response{
			3: p.Do(t, "POST", "/plants", `{"id":1,"name":"x"}`, testkit.ContentJSON, as),
			2: p.Do(t, "GET", "/plants/1", "", as),
			1: p.Do(t, "GET", "/plants/2", "", as), // Errors count too.
			0: p.Do(t, "PUT", "/plants/1", `{"name":"y"}`, testkit.ContentJSON, as),
		} {
			policy, now := a.Header.Get("RateLimit-Policy"), a.Header.Get("RateLimit") // nearly an hour is left
			if want := fmt.Sprintf(`"token";r=%d;t=3[56]\d\d`, left); policy != `"token";q=4;w=14400` ||
				!regexp.MustCompile(want).MatchString(now) {
				t.Errorf("%d %s: RateLimit-Policy %s, RateLimit %s, want %s", a.Status, a.Body, policy, now, want)
			}
		}
		for request, body := range map[string]string{
			"POST /plants": `{"id":3,"name":"x"}`, "GET /plants/1": "", "GET /plants": "", "PUT /plants/1": `{"name":"z"}`,
			"DELETE /plants/1": "",
		} {
			method, path, _ := strings.Cut(request, " ")
			wantLimited(t, request, p.Do(t, method, path, body, testkit.ContentJSON, as), 42901, 3600)
		}
		status, text := testkit.ParseRaw(p.Raw(t, "POST /plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+as+
			"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"))
		if status != 429 || !strings.Contains(text, "42901") {
			t.Errorf("a create whose body is never sent: %d %s", status, text)
		}

		free := p.Create(t, `{"id":4,"name":"x"}`)
		testkit.WantResponse(t, "a token without a rate", free, 200, `{"name":"x"}`)
		for name := range free.Header {
			if !slices.Contains([]string{"Content-Type", "Content-Length", "Date", "X-Request-Id"}, name) {
				t.Errorf("the response to a token without a rate has %s: %s", name, free.Header.Get(name))
			}
		}
		testkit.WantResponse(t, "the stored plants", p.Do(t, "GET", "/plants", ""), 200,
			`[{"id":1,"name":"y"},{"id":4,"name":"x"}]`)
	})
}

// exhaust sends wrong credentials until one is refused without a lookup.
func exhaust(t *testing.T, p *testkit.Server, from string) testkit.Response {
	t.Helper()
	for range 400 {
		a := p.Do(t, "GET", "/plants", "", from, bearer("plant_typo"))
		if a.Status == 429 {
			return a
		}
		testkit.WantError(t, "a wrong credential", a, 40103)
	}
	t.Fatal("400 wrong credentials were all looked up")
	return testkit.Response{}
}

// The client address that counts failures and is logged is the one that a trusted proxy appended to X-Forwarded-For.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	const failed, other = "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.3"
	db := testkit.Engines[0].Database(t)
	p := testkit.Start(t, db, "--trusted-proxies", "10.0.0.0/8,127.0.0.1", "--access-log", "all")
	wantLimited(t, "many failures", exhaust(t, p, failed), 42902, 60)
	testkit.WantError(t, "another client of the proxy",
		p.Do(t, "GET", "/plants", "", "X-Forwarded-For: 192.0.2.1, 192.0.2.2, 10.1.1.1",
			bearer("plant_typo")), 40103)
	// A valid token from another address, and then from the address of the failures.
	testkit.WantResponse(t, "a new token from another address",
		p.Do(t, "GET", "/plants", "", other), 200, "[]")
	testkit.WantResponse(t, "that token from the address that failed",
		p.Do(t, "GET", "/plants", "", failed), 200, "[]")
	for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		p.WaitLogged(t, `"from":"`+from+`"`)
	}
}
