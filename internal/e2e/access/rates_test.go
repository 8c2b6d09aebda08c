package access

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/internal/store/postgres/pgtest"
	"plantstore/internal/testkit"
	"plantstore/internal/testkit/proxy"
	"plantstore/internal/token"
)

// policyOf is the two headers that describe a rate.
func policyOf(a testkit.Response) [2]string {
	return [2]string{a.Header.Get("RateLimit-Policy"), a.Header.Get("RateLimit")}
}

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

var untilMore = regexp.MustCompile(`t=([0-9]+)$`)

// After its burst, every request of a token is refused before its body is read, and has no effect. Other tokens are not
// affected, and responses to tokens without a rate have no headers about it.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db := e.Database(t)
			p := testkit.Start(t, db)
			limited := testkit.IssueToken(t, db, "--name", "limited", "--rate", "1/m", "--burst", "4")
			as := "Authorization: Bearer " + limited
			page := "Origin: https://docs.example"
			for left, a := range []testkit.Response{
				3: p.Do(t, "POST", "/plants", `{"id":1,"name":"x"}`, testkit.ContentJSON, as, page),
				2: p.Do(t, "GET", "/plants/1", "", as, page),
				1: p.Do(t, "GET", "/plants/2", "", as, page), // Errors count too.
				0: p.Do(t, "PUT", "/plants/1", `{"name":"y"}`, testkit.ContentJSON, as, page),
			} {
				got := policyOf(a)
				wait := untilMore.FindString(got[1])
				want := [2]string{`"token";q=4;w=240`, fmt.Sprintf(`"token";r=%d;%s`, left, wait)}
				if got != want || wait < "t=5" {
					t.Errorf("%d %s: the rate headers are %q, want %q and nearly a minute", a.Status, a.Body, got, want)
				}
				for _, name := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
					if !slices.Contains(strings.Split(a.Header.Get("Access-Control-Expose-Headers"), ", "), name) {
						t.Errorf("a page may not read %s", name)
					}
				}
			}
			wantLimited(t, "create", p.Do(t, "POST", "/plants", `{"id":3,"name":"x"}`, testkit.ContentJSON, as), 42901, 60)
			wantLimited(t, "read", p.Do(t, "GET", "/plants/1", "", as), 42901, 60)
			wantLimited(t, "list", p.Do(t, "GET", "/plants", "", as), 42901, 60)
			wantLimited(t, "replace", p.Do(t, "PUT", "/plants/1", `{"name":"z"}`, testkit.ContentJSON, as), 42901, 60)
			wantLimited(t, "remove", p.Do(t, "DELETE", "/plants/1", "", as), 42901, 60)
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

			list, _, _ := testkit.Run(t, nil, "token", "list", "--db", db)
			asJSON, _, _ := testkit.Run(t, nil, "token", "list", "--db", db, "--json")
			if !regexp.MustCompile(`limited .* 1/m, burst 4 `).MatchString(list) ||
				!regexp.MustCompile(`first .* - +\d{4}-`).MatchString(list) ||
				!strings.Contains(asJSON, `"rate": "1/m"`) || !strings.Contains(asJSON, `"burst": 4`) ||
				strings.Count(asJSON, `"rate"`) != 1 {
				t.Errorf("token list:\n%s%s", list, asJSON)
			}
		})
	}
}

// Tokens without a rate have the default rate, also the fixed token. A token's own rate takes precedence.
func TestDefaultRate(t *testing.T) {
	t.Parallel()
	db := testkit.Engines[0].Database(t)
	own := "Authorization: Bearer " + testkit.IssueToken(t, db, "--name", "own", "--rate", "100/s", "--burst", "200")
	stored := "Authorization: Bearer " + testkit.IssueToken(t, db, "--name", "stored")
	fixed := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(fixed, []byte(testkit.FixedToken), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testkit.Start(t, db, "--default-rate", "1/h", "--default-burst", "2", "--token-file", fixed)
	for _, as := range []string{stored, "Authorization: Bearer " + testkit.FixedToken} {
		for _, left := range []string{"1", "0"} {
			a := p.Do(t, "GET", "/plants", "", as)
			if got := policyOf(a); a.Status != 200 || got[0] != `"token";q=2;w=7200` ||
				!strings.HasPrefix(got[1], `"token";r=`+left+";t=3") {
				t.Errorf("%d, the rate headers are %q", a.Status, got)
			}
		}
		wantLimited(t, "past the default", p.Do(t, "GET", "/plants", "", as), 42901, 3600)
	}
	if a := p.Do(t, "GET", "/plants", "", own); a.Status != 200 ||
		policyOf(a) != [2]string{`"token";q=200;w=2`, `"token";r=199;t=1`} {
		t.Errorf("%d, the headers of the token's own rate are %q", a.Status, policyOf(a))
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"token", "issue", "--name", "x", "--rate", "fast"}, "100/s"},
		{[]string{"token", "issue", "--name", "x", "--burst", "5"}, "needs a rate"},
		{[]string{"token", "issue", "--name", "x", "--rate", "1/s", "--burst", "-5"}, "burst"},
		{[]string{"serve", "--default-rate", "100"}, "100/s"},
		{[]string{"serve", "--default-burst", "100"}, "needs a rate"},
		{[]string{"serve", "--trusted-proxies", "10.0.0.0/99"}, "10.0.0.0/8"},
	} {
		out, errs, code := testkit.Run(t, []string{"PLANTSTORE_DB=" + db}, test.args...)
		if code != 2 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit 2 and one line with %q", test.args, code, out, errs,
				test.want)
		}
	}
}

// exhaust sends wrong credentials until one is refused without a lookup.
func exhaust(t *testing.T, p *testkit.Server, headers func(n int) []string) testkit.Response {
	t.Helper()
	for n := range 400 {
		a := p.Do(t, "GET", "/plants", "", append(headers(n), "Authorization: Bearer plant_typo")...)
		if a.Status == 429 {
			return a
		}
		testkit.WantError(t, "a wrong credential", a, 40103)
	}
	t.Fatal("400 wrong credentials were all looked up")
	return testkit.Response{}
}

// The client address that counts failures and is logged comes from X-Forwarded-For of a trusted proxy only.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	forwarded := func(address string) []string { return []string{"X-Forwarded-For: " + address} }
	t.Run("trusted", func(t *testing.T) {
		t.Parallel()
		db := testkit.Engines[0].Database(t)
		p := testkit.Start(t, db, "--trusted-proxies", "10.0.0.0/8,127.0.0.1", "--access-log", "all")
		wantLimited(t, "many failures", exhaust(t, p, func(int) []string { return forwarded("192.0.2.1") }), 42902, 60)
		testkit.WantError(t, "another client of the proxy",
			p.Do(t, "GET", "/plants", "", "X-Forwarded-For: 192.0.2.1, 192.0.2.2, 10.1.1.1",
				"Authorization: Bearer plant_typo"), 40103)
		// A valid token from another address, and then from the address of the failures.
		testkit.WantResponse(t, "a new token from another address",
			p.Do(t, "GET", "/plants", "", forwarded("192.0.2.3")...), 200, "[]")
		testkit.WantResponse(t, "that token from the address that failed",
			p.Do(t, "GET", "/plants", "", forwarded("192.0.2.1")...), 200, "[]")
		for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
			p.WaitLogged(t, `"from":"`+from+`"`)
		}
	})
	t.Run("not trusted", func(t *testing.T) {
		t.Parallel()
		p := testkit.Start(t, testkit.Engines[0].Database(t), "--trusted-proxies", "10.0.0.0/8", "--access-log", "all")
		exhaust(t, p, func(n int) []string { return forwarded(fmt.Sprint("10.0.0.", n%250)) })
		p.WaitLogged(t, `"from":"127.0.0.1:`)
		p.Kill() // Then its log is complete.
		if strings.Contains(p.Stderr.String(), `"from":"10.`) {
			t.Error("the log has an address that the client chose")
		}
	})
}

// flood sends requests over many connections at the same time, each with the next of the credentials; an empty one
// means no header. It returns the count of each status.
func flood(t *testing.T, p *testkit.Server, conns int, credentials []string) map[int]int {
	t.Helper()
	var mu sync.Mutex
	counts := map[int]int{}
	var next atomic.Int64
	end := time.Now().Add(testkit.Deadline)
	var wg sync.WaitGroup
	for range conns {
		s := p.Connect(t)
		wg.Go(func() {
			for time.Now().Before(end) {
				i := int(next.Add(1)) - 1
				if i >= len(credentials) {
					return
				}
				header := ""
				if credentials[i] != "" {
					header = "Authorization: Bearer " + credentials[i] + "\r\n"
				}
				a, err := s.Exchange("GET /plants/1 HTTP/1.1\r\nHost: x\r\n" + header + "\r\n")
				if err != nil {
					t.Errorf("a wrong token: %v", err)
					return
				}
				mu.Lock()
				counts[a.Status]++
				mu.Unlock()
				time.Sleep(5 * time.Millisecond) // so that the processor is not the bottleneck
			}
		})
	}
	wg.Wait()
	return counts
}

// during creates plants over a few connections while do runs, and returns the time that 99 of 100 stay below.
func during(t *testing.T, p *testkit.Server, next *atomic.Int64, do func()) time.Duration {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		s := p.Connect(t)
		wg.Go(func() {
			for !stop.Load() {
				start := time.Now()
				if a := s.Create(int(next.Add(1)), "x"); a.Status != http.StatusOK {
					t.Errorf("the valid token got %d %s", a.Status, a.Body)
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	do()
	stop.Store(true)
	wg.Wait()
	slices.Sort(took)
	if len(took) < 10 {
		t.Fatalf("the valid token had only %d responses", len(took))
	}
	return took[len(took)*99/100]
}

// waitCreates waits until so many more creates have started.
func waitCreates(t *testing.T, next *atomic.Int64, more int64) {
	t.Helper()
	want := next.Load() + more
	testkit.WaitFor(t, fmt.Sprintf("%d creates", more), func() bool { return next.Load() >= want || t.Failed() })
}

// wrongTokens have a valid form, but were never issued.
func wrongTokens(n int) []string {
	wrong := make([]string, n)
	for i := range wrong {
		wrong[i] = token.Generate()
	}
	return wrong
}

// wantRefused checks the responses to wrong tokens: all are refused, and lookups, some of which may have taken too
// long, are within the burst and the rate of failures. One in thirty more tokens is looked up in its retry slot.
func wantRefused(t *testing.T, counts map[int]int, all int, took time.Duration) {
	t.Helper()
	const burst, perSecond, atOnce = 100, 10, 192
	lookups := counts[401] + counts[503]
	most := burst + atOnce + all/20 + int(perSecond*took.Seconds())
	if lookups+counts[429] != all || counts[503] > atOnce || lookups > most {
		t.Errorf("%d wrong tokens got %v within %v, want 429 for all but %d, and 401", all, counts, took, most)
	}
}

// Ten thousand wrong tokens do not keep a valid one from being served, and nearly all of them are refused without a
// lookup, which would slow down the valid one.
func TestWrongTokensDoNotSlowARightOne(t *testing.T) {
	testkit.OnEachEngine(t, func(t *testing.T, p *testkit.Server) {
		var next atomic.Int64
		without := during(t, p, &next, func() {
			if counts := flood(t, p, 32, make([]string, 5000)); counts[401] != 5000 {
				t.Errorf("without a token: %v, want 401", counts)
			}
		})
		with := during(t, p, &next, func() {
			start := time.Now()
			wantRefused(t, flood(t, p, 32, wrongTokens(10_000)), 10_000, time.Since(start))
		})
		t.Logf("99 of 100 creates took at most %v, and %v with requests without a token", with, without)
	}, "--access-log", "off")
}

// With a distant database a lookup takes long, and lookups of wrong tokens do not delay that of a valid one until it
// fails.
func TestWrongTokensAndADistantDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	network := proxy.New(t, fmt.Sprintf("127.0.0.1:%d", server.Port))
	db := server.Through(network.Address, testkit.DatabaseName(t, server.Database(t)))
	p := testkit.Start(t, db, "--access-log", "off")
	network.Set(proxy.Delay(proxy.Replies, 20*time.Millisecond, 0))
	var next atomic.Int64
	without := during(t, p, &next, func() { waitCreates(t, &next, 50) })
	with := during(t, p, &next, func() {
		start := time.Now()
		wantRefused(t, flood(t, p, 192, wrongTokens(2000)), 2000, time.Since(start))
	})
	t.Logf("99 of 100 creates took at most %v, and %v without wrong tokens", with, without)
}
