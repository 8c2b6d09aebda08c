package access

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"plantstore/internal/testkit"
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

// within2s polls until a create with a token returns a status, which must be so two seconds after the change.
func within2s(t *testing.T, what string, s *testkit.Server, credential string, status int) testkit.Response {
	t.Helper()
	for changed := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		sent := time.Now()
		a := s.Do(t, "POST", "/plants", `{"id":1,"name":"x"}`, testkit.ContentJSON, bearer(credential))
		if a.Status == status {
			return a
		}
		if sent.Sub(changed) > 2*time.Second {
			t.Fatalf("%s: %d %s two seconds later, want %d", what, a.Status, a.Body, status)
		}
	}
}

// A running service applies changes of tokens within two seconds, and an old token works until the overlap ends.
func TestTokensForYears(t *testing.T) {
	testkit.Long(t)
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			s := testkit.Start(t, db)
			start := time.Now().Truncate(time.Minute)
			ci := testkit.IssueToken(t, db, "--name", "ci", "--expires", "90d")
			testkit.IssueToken(t, db, "--name", "unused")
			within2s(t, "a new token", s, ci, 200)

			tokenCommand(t, db, "update", "ci", "--scopes", "plants:read")
			testkit.WantError(t, "without the scope", within2s(t, "new scopes", s, ci, 403), 40301)
			tokenCommand(t, db, "update", "ci", "--scopes", "plants:create", "--rate", "1/h")
			within2s(t, "new scopes", s, ci, 200)
			testkit.WantError(t, "over the rate", within2s(t, "a new rate", s, ci, 429), 42901)
			tokenCommand(t, db, "update", "ci", "--rate", "none", "--expires", "1ms")
			testkit.WantError(t, "expired", within2s(t, "a new expiry", s, ci, 401), 40105)
			tokenCommand(t, db, "update", "ci", "--expires", "30d")
			within2s(t, "a longer expiry", s, ci, 200)

			second := tokenCommand(t, db, "rotate", "ci", "--overlap", "1h")
			within2s(t, "the new token", s, second, 200)
			within2s(t, "the old token", s, ci, 200)
			third := tokenCommand(t, db, "rotate", "ci", "--overlap", "0s")
			testkit.WantError(t, "a token without an overlap", within2s(t, "the old token", s, second, 401), 40105)
			within2s(t, "the oldest token", s, ci, 200)
			within2s(t, "the newest token", s, third, 200)

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
