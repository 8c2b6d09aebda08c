package access

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"plantstore/test/testkit"
)

// tokenRow is a token in the output of token list --json.
type tokenRow struct {
	Name              string
	LastUsed, Expires time.Time
}

func listTokens(t *testing.T, db string) map[string]tokenRow {
	t.Helper()
	out, errs, code := testkit.Run(t, nil, "token", "list", "--db", db, "--json")
	var rows []tokenRow
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
		t.Fatalf("token list: exit %d %s %v", code, errs, err)
	}
	all := map[string]tokenRow{}
	for _, row := range rows {
		all[row.Name] = row
	}
	return all
}

func tokenCommand(t *testing.T, db string, args ...string) (stdout string) {
	t.Helper()
	out, errs, code := testkit.Run(t, []string{"PLANTSTORE_DB=" + db}, append([]string{"token"}, args...)...)
	if code != 0 {
		t.Fatalf("token %q: exit %d %q %q", args, code, out, errs)
	}
	return strings.TrimSpace(out)
}

// until sends creates with a token until one returns a status.
func until(t *testing.T, what string, s *testkit.Server, credential string, status int) (a testkit.Response) {
	t.Helper()
	testkit.WaitFor(t, what, func() bool { a = createWith(t, s, credential); return a.Status == status })
	return a
}

// A running service applies changes of tokens, and an old token works until the overlap ends.
func TestTokensForYears(t *testing.T) {
	testkit.Long(t)
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			s := testkit.Start(t, db)
			start := time.Now().Truncate(time.Minute)
			ci := testkit.IssueToken(t, db, "--name", "ci", "--expires", "90d")
			testkit.IssueToken(t, db, "--name", "unused")
			until(t, "a new token", s, ci, 200)

			tokenCommand(t, db, "update", "ci", "--scopes", "plants:read", "--expires", "30d")
			testkit.WantError(t, "without the scope", until(t, "new scopes", s, ci, 403), 40301)
			tokenCommand(t, db, "update", "ci", "--scopes", "plants:create")
			until(t, "new scopes", s, ci, 200)

			second := tokenCommand(t, db, "rotate", "ci", "--overlap", "1h")
			until(t, "the new token", s, second, 200)
			until(t, "the old token", s, ci, 200)
			third := tokenCommand(t, db, "rotate", "ci", "--overlap", "0s")
			testkit.WantError(t, "a token without an overlap", until(t, "the old token", s, second, 401), 40105)
			until(t, "the oldest token", s, ci, 200)
			until(t, "the newest token", s, third, 200)

			if code := s.Stop(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			all, old := listTokens(t, db), "ci."+ci[len(ci)-4:]
			if left := all[old].Expires.Sub(start); left > 63*time.Minute || left < 0 {
				t.Errorf("the old token expires in %v, want an hour", left)
			}
			for _, name := range []string{"ci", old, "ci." + second[len(second)-4:]} {
				if at := all[name].LastUsed; at.Before(start) || at.After(time.Now()) || at != at.Truncate(time.Minute) {
					t.Errorf("token %s was last used at %v, want the minute after %v", name, at, start)
				}
			}
			if at := all["unused"].LastUsed; len(all) != 5 || !at.IsZero() {
				t.Errorf("%d tokens; a token that is not used was last used at %v", len(all), at)
			}
		})
	}
}
