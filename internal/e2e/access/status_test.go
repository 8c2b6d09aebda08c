package access

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/internal/testkit"
)

// Every token can read what it is, whatever its scopes are, and never itself.
func TestToken(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db := e.Database(t)
			p := testkit.Start(t, db, "--default-rate", "7/s")
			for want, args := range map[string][]string{
				`{"name":"a","store":"main","scopes":["plants:create","plants:read","plants:write"],"rate":"7/s","burst":7}`: nil,
				`{"name":"b","store":"greenhouse","scopes":["plants:create"],"rate":"10/m","burst":3}`: {
					"--store", "greenhouse", "--scopes", "plants:create", "--rate", "10/m", "--burst", "3"},
			} {
				credential := testkit.IssueToken(t, db, append(args, "--name", want[9:10])...)
				a := p.Do(t, "GET", "/token", "", "Authorization: Bearer "+credential)
				testkit.WantResponse(t, "the token", a, 200, want)
			}
			credential := testkit.IssueToken(t, db, "--name", "short", "--expires", "12h", "--scopes", "plants:write")
			a := p.Do(t, "GET", "/token", "", "Authorization: Bearer "+credential)
			list, _, _ := testkit.Run(t, nil, "token", "list", "--db", db, "--json")
			var got struct{ Expires string }
			if err := json.Unmarshal([]byte(a.Body), &got); err != nil || got.Expires == "" ||
				!strings.Contains(list, fmt.Sprintf(`"expires": %q`, got.Expires)) {
				t.Errorf("%s has another expiry than the list:\n%s", a.Body, list)
			}
			testkit.WantError(t, "no token", p.Do(t, "GET", "/token", "", "Authorization"), 40101)
			if out, errs, code := testkit.Run(t, nil, "token", "revoke", "--db", db, "short"); code != 0 {
				t.Fatalf("revoke: %s%s", out, errs)
			}
			testkit.WaitFor(t, "the revoked token is refused", func() bool {
				return p.Do(t, "GET", "/token", "", "Authorization: Bearer "+credential).Status == 401
			})
		})
	}
}

// The activity counts the plants that the process creates in the store of the token, and no other.
func TestActivity(t *testing.T) {
	t.Parallel()
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			db := e.Database(t)
			p := testkit.Start(t, db)
			other := "Authorization: Bearer " + testkit.IssueToken(t, db, "--name", "other", "--store", "other")
			for _, body := range []string{
				`{"id":1,"name":"x"}`, `{"id":2,"name":"x"}`, `{"id":1,"name":"x"}`, `{"id":1,"name":"y"}`, `{"id":3}`,
			} {
				p.Create(t, body)
			}
			p.Do(t, "DELETE", "/plants/2", "")
			p.Do(t, "POST", "/plants", `{"id":1,"name":"z"}`, testkit.ContentJSON, other)
			process := activity(t, p.Do(t, "GET", "/activity", ""), 2)
			if again := activity(t, p.Do(t, "GET", "/activity", "", other), 1); again != process {
				t.Errorf("the process is %s and %s", process, again)
			}
			writer := testkit.IssueToken(t, db, "--name", "writer", "--scopes", "plants:create,plants:write")
			testkit.WantError(t, "without the scope",
				p.Do(t, "GET", "/activity", "", "Authorization: Bearer "+writer), 40301)
			p.Kill()
			restarted := testkit.StartAgain(t, p, db)
			if another := activity(t, restarted.Do(t, "GET", "/activity", ""), 0); another == process {
				t.Errorf("another process has the same id %s", another)
			}
		})
	}
}

// activity checks the number of plants and returns the id of the process.
func activity(t *testing.T, a testkit.Response, created int) (process string) {
	t.Helper()
	var got struct{ Process string }
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil || len(got.Process) != 13 {
		t.Errorf("%d %s: %v", a.Status, a.Body, err)
	}
	testkit.WantResponse(t, "activity", a, 200, fmt.Sprintf(`{"process":%q,"created":%d}`, got.Process, created))
	return got.Process
}

// Requests about the token do not spend its rate, and a token that has spent it can still send them.
func TestStatusRate(t *testing.T) {
	t.Parallel()
	db := testkit.Engines[0].Database(t)
	p := testkit.Start(t, db)
	as := "Authorization: Bearer " + testkit.IssueToken(t, db, "--name", "limited", "--rate", "1/h", "--burst", "1")
	for range 3 {
		for _, path := range []string{"/token", "/activity"} {
			if a := p.Do(t, "GET", path, "", as); a.Status != 200 || policyOf(a)[0] != `"status";q=10;w=2` {
				t.Errorf("%s: %d %s %v", path, a.Status, a.Body, policyOf(a))
			}
		}
	}
	if a := p.Do(t, "GET", "/plants", "", as); a.Status != 200 || !strings.HasPrefix(policyOf(a)[1], `"token";r=0;`) {
		t.Errorf("the rate was spent: %d %s %v", a.Status, a.Body, policyOf(a))
	}
	wantLimited(t, "list", p.Do(t, "GET", "/plants", "", as), 42901, 3600)
	testkit.WaitFor(t, "a token that has spent its rate reads its name", func() bool {
		return p.Do(t, "GET", "/token", "", as).Status == 200
	})
	testkit.WaitFor(t, "the rate of the path is exceeded", func() bool {
		var limited atomic.Int32
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				a := p.Do(t, "GET", "/token", "", as)
				if a.Status == 200 {
					return
				}
				limited.Add(1)
				testkit.WantError(t, "over the rate", a, 42901)
				if a.Header.Get("Retry-After") != "1" || policyOf(a)[1] != `"status";r=0;t=1` {
					t.Errorf("over the rate: Retry-After %s, %v", a.Header.Get("Retry-After"), policyOf(a))
				}
			})
		}
		all.Wait()
		return limited.Load() > 0
	})
}
