package access

import (
	"os"
	"strings"
	"testing"

	"plantstore/internal/token"
	"plantstore/test/testkit"
)

// bearer is the header with a token.
func bearer(token string) string { return "Authorization: Bearer " + token }

// Every invalid credential is refused with its own error and challenge, and no token is logged, echoed or stored. A
// token uses plants of its own store only, and the first one is printed by the first start only.
func TestCredentials(t *testing.T) {
	t.Parallel()
	testkit.OnEachDatabase(t, func(t *testing.T, db string) {
		s := testkit.Start(t, db, "--access-log", "all")
		if s.Token == "" || !strings.Contains(s.Stdout.String(), "curl -i "+s.URL+"/plants") {
			t.Fatalf("the first start prints:\n%s", s.Stdout)
		}
		reader := testkit.IssueToken(t, db, "--name", "reader", "--scopes", "plants:read")
		expired := testkit.IssueToken(t, db, "--name", "short", "--expires", "1ms")
		wantChallenges(t, s, reader, expired)
		misplaceToken(t, s)
		testkit.WantResponse(t, "the stored plants", s.Do(t, "GET", "/plants", "", "Authorization: bEaReR "+reader), 200,
			"[]")
		other := testkit.IssueToken(t, db, "--name", "other", "--store", "other")
		wantSeparateStores(t, s, bearer(other))
		if out, errs, code := testkit.Run(t, nil, "token", "revoke", "--db", db, "other"); code != 0 || out != "" {
			t.Fatalf("token revoke: exit %d %q %q", code, out, errs)
		}
		testkit.WaitFor(t, "the revoked token to be refused", func() bool {
			return s.Do(t, "GET", "/plants", "", bearer(other)).Number() == 40106
		})
		s.Kill()
		wantNoSecret(t, s, db, reader, expired, s.Token)
		again := testkit.StartAgain(t, s, db)
		testkit.WantResponse(t, "after a restart", again.Do(t, "GET", "/plants/2", ""), 200, `{"id":2,"name":"x"}`)
		again.Kill() // Then its output is complete.
		if testkit.TokenPattern.MatchString(again.Stdout.String()) {
			t.Errorf("the second start prints a token:\n%s", again.Stdout)
		}
	})
}

// wantChallenges sends creates with invalid credentials.
func wantChallenges(t *testing.T, s *testkit.Server, reader, expired string) {
	t.Helper()
	typo := s.Token[:len(s.Token)-2] + s.Token[len(s.Token)-1:] + "-"
	for _, test := range []struct {
		what, header string
		number       int
		challenge    string
	}{
		{"none", "Authorization", 40101, `Bearer realm="plantstore"`},
		{"another scheme", "Authorization: Basic eDp5", 40102, `Bearer realm="plantstore"`},
		{"no token", bearer(""), 40102, `Bearer realm="plantstore"`},
		{"a typo", bearer(typo), 40103, `error="invalid_token"`},
		{"another service's", bearer("ghp_0123456789"), 40103, `error="invalid_token"`},
		{"unknown", bearer(token.Generate()), 40104, `error="invalid_token"`},
		{"expired", bearer(expired), 40105, `error="invalid_token"`},
		{"without the scope", bearer(reader), 40301, `error="insufficient_scope", scope="plants:create"`},
	} {
		a := s.Do(t, "POST", "/plants", `{"id":1,"name":"x"}`, testkit.ContentJSON, test.header)
		testkit.WantError(t, test.what, a, test.number)
		challenge := a.Header.Get("WWW-Authenticate")
		if !strings.HasPrefix(challenge, "Bearer ") || !strings.Contains(challenge, test.challenge) {
			t.Errorf("%s: WWW-Authenticate %q, want %q in it", test.what, challenge, test.challenge)
		}
		if test.number <= 40102 && strings.Contains(challenge, "error") {
			t.Errorf("%s: WWW-Authenticate %q names an error although no token was sent", test.what, challenge)
		}
	}
}

// misplaceToken sends the token where it is not read.
func misplaceToken(t *testing.T, s *testkit.Server) {
	t.Helper()
	bodies := s.Do(t, "GET", "/plants?limit=%zz&access_token="+s.Token, "").Body +
		s.Do(t, "GET", "/nowhere/"+s.Token, "").Body
	if strings.Contains(bodies, s.Token) {
		t.Errorf("a misplaced token is in the response: %s", bodies)
	}
	s.Do(t, "GET", "/plants/x", "", "X-Request-Id: "+s.Token)
	inQuery := s.Do(t, "POST", "/plants?access_token="+s.Token, `{"id":1,"name":"x"}`, testkit.ContentJSON,
		"Authorization")
	testkit.WantError(t, "in the query", inQuery, 40101)
	twice := "POST /plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + bearer(s.Token) + "\r\n" + bearer(s.Token) +
		"\r\nContent-Length: 0\r\n\r\n"
	if status, text := testkit.ParseRaw(s.Raw(t, twice)); status != 401 || !strings.Contains(text, "40102") {
		t.Errorf("two Authorization headers: %d %s", status, text)
	}
}

// wantNoSecret checks the log of a server that has ended, and its database file on SQLite.
func wantNoSecret(t *testing.T, s *testkit.Server, db string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(s.Stderr.String(), secret) {
			t.Error("a token is in the log")
		}
		for _, suffix := range []string{"", "-wal"} {
			content, _ := os.ReadFile(db + suffix)
			if strings.Contains(string(content), secret) || strings.Contains(string(content), secret[6:36]) {
				t.Errorf("a token is in the database file%s", suffix)
			}
		}
	}
}

// wantSeparateStores creates the same id in the store of the server's token and in another.
func wantSeparateStores(t *testing.T, s *testkit.Server, other string) {
	t.Helper()
	s.Create(t, `{"id":1,"name":"x"}`)
	s.Create(t, `{"id":2,"name":"x"}`)
	a := s.Do(t, "POST", "/plants", `{"id":1,"name":"y"}`, testkit.ContentJSON, other)
	testkit.WantResponse(t, "the same id in another store", a, 200, `{"name":"y"}`)
	testkit.WantResponse(t, "list the other store", s.Do(t, "GET", "/plants", "", other), 200, `[{"id":1,"name":"y"}]`)
	testkit.WantError(t, "read from the first store", s.Do(t, "GET", "/plants/2", "", other), 40401)
	testkit.WantError(t, "remove from the first store", s.Do(t, "DELETE", "/plants/2", "", other), 40401)
	testkit.WantResponse(t, "list the first store", s.Do(t, "GET", "/plants", ""), 200,
		`[{"id":1,"name":"x"},{"id":2,"name":"x"}]`)
}
