package access

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/internal/testkit"
	"plantstore/internal/token"
)

// bearer is the header with a token.
func bearer(token string) string { return "Authorization: Bearer " + token }

// Every invalid credential is refused with its own error and challenge, and no token is logged, echoed or stored.
func TestCredentials(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			s := testkit.Start(t, db, "--access-log", "all")
			reader := testkit.IssueToken(t, db, "--name", "reader", "--scopes", "plants:read")
			expired := testkit.IssueToken(t, db, "--name", "short", "--expires", "1ms")
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
				{"unknown", bearer(unknownToken), 40104, `error="invalid_token"`},
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
			misplaceToken(t, s)
			testkit.WantResponse(t, "the stored plants", s.Do(t, "GET", "/plants", "", "Authorization: bEaReR "+reader), 200,
				"[]")
			s.Kill()
			wantNoSecret(t, s, db, reader, expired, s.Token)
		})
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

// A token reads and creates plants of its own store only.
func TestStoresAreSeparate(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			s := testkit.Start(t, db)
			other := bearer(testkit.IssueToken(t, db, "--name", "other", "--store", "other"))
			s.Create(t, `{"id":1,"name":"x"}`)
			s.Create(t, `{"id":2,"name":"x"}`)
			a := s.Do(t, "POST", "/plants", `{"id":1,"name":"y"}`, testkit.ContentJSON, other)
			testkit.WantResponse(t, "the same id in another store", a, 200, `{"name":"y"}`)
			testkit.WantResponse(t, "list the other store", s.Do(t, "GET", "/plants", "", other), 200, `[{"id":1,"name":"y"}]`)
			testkit.WantError(t, "read from the first store", s.Do(t, "GET", "/plants/2", "", other), 40401)
			testkit.WantError(t, "remove from the first store", s.Do(t, "DELETE", "/plants/2", "", other), 40401)
			testkit.WantResponse(t, "list the first store", s.Do(t, "GET", "/plants", ""), 200,
				`[{"id":1,"name":"x"},{"id":2,"name":"x"}]`)
		})
	}
}

// A token that another process revokes is refused after two seconds at most.
func TestRevokedToken(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			s := testkit.Start(t, db)
			testkit.WantResponse(t, "before", s.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
			if out, errs, code := testkit.Run(t, nil, "token", "revoke", "--db", db, "first"); code != 0 || out != "" {
				t.Fatalf("token revoke: exit %d %q %q", code, out, errs)
			}
			revoked := time.Now()
			for ; ; time.Sleep(20 * time.Millisecond) {
				sent := time.Now() // The create itself may wait for the disk.
				a := s.Create(t, `{"id":1,"name":"x"}`)
				if a.Status != 200 {
					testkit.WantError(t, "after", a, 40106)
					return
				}
				if sent.Sub(revoked) > 2*time.Second {
					t.Fatal("the token works two seconds after it was revoked")
				}
			}
		})
	}
}

// unknownToken has a valid form and checksum, but was never issued.
var unknownToken = token.Generate()

func TestTokenCommands(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			credential := testkit.IssueToken(t, db, "--name", "ci", "--store", "sandbox", "--scopes",
				"plants:create,plants:read", "--expires", "90d")
			testkit.IssueToken(t, db, "--name", "second")
			out, _, code := testkit.Run(t, []string{"PLANTSTORE_DB=" + db}, "token", "list", "--json")
			var rows []map[string]any
			if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) != 2 {
				t.Fatalf("token list --json: exit %d, %v\n%s", code, err, out)
			}
			first := rows[0]
			created, err1 := time.Parse(time.RFC3339, first["created"].(string))
			expires, err2 := time.Parse(time.RFC3339, first["expires"].(string))
			if err1 != nil || err2 != nil || expires.Sub(created).Round(time.Hour) != 90*24*time.Hour {
				t.Errorf("created %v and expires %v are not 90 days apart", first["created"], first["expires"])
			}
			if first["name"] != "ci" || first["store"] != "sandbox" || first["lastFour"] != credential[len(credential)-4:] ||
				len(first["scopes"].([]any)) != 2 || rows[1]["expires"] != nil {
				t.Errorf("token list --json:\n%s", out)
			}
			table, _, _ := testkit.Run(t, nil, "token", "list", "--db", db)
			if !strings.Contains(table, "ci") || !strings.Contains(table, "sandbox") ||
				!strings.Contains(table, "…"+credential[len(credential)-4:]) {
				t.Errorf("token list:\n%s", table)
			}
			if strings.Contains(out+table, credential[:20]) {
				t.Error("token list shows a token")
			}
			for _, test := range []struct {
				args []string
				code int
				want string
			}{
				{[]string{"issue", "--name", "ci"}, 4, "exists"},
				{[]string{"issue"}, 2, "--name is required"},
				{[]string{"issue", "--name", "a b"}, 2, `' '`},
				{[]string{"issue", "--name", "x", "--scopes", "all"}, 2, "plants:create"},
				{[]string{"issue", "--name", "x", "--expires", "soon"}, 2, "90d"},
				{[]string{"issue", "--name", "x", "--store", "a/b"}, 2, "store"},
				{[]string{"revoke", "unknown"}, 3, "token list"},
				{[]string{"revoke"}, 2, "NAME"},
				{[]string{"list", "--nope"}, 2, "nope"},
			} {
				args := append([]string{"token", test.args[0], "--db", db}, test.args[1:]...)
				out, errs, code := testkit.Run(t, nil, args...)
				if code != test.code || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 || out != "" {
					t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit %d and one line with %q", args, code, out, errs,
						test.code, test.want)
				}
			}
		})
	}
}

func TestFixedToken(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-a-file-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testkit.Start(t, db, "--token-file", file)
	p.Token = "from-a-file-0123456789"
	testkit.WantResponse(t, "the token of the file", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
	p.Token = "from-a-file-012345678"
	testkit.WantError(t, "nearly that token", p.Create(t, `{"id":1,"name":"x"}`), 40103)
	inUse := `"msg":"fixed token in use, with every scope","from":"` + file + `"`
	if log := p.Stderr.String(); !strings.Contains(log, inUse) || strings.Contains(log, "from-a-file-0123456789") {
		t.Errorf("the log does not say that a fixed token is in use, or has the token: %s", log)
	}
	p.Kill() // Then its output is complete.
	if testkit.TokenPattern.MatchString(p.Stdout.String()) {
		t.Errorf("a first token was issued in addition to the fixed one: %s", p.Stdout)
	}
	out, errs, code := testkit.Run(t, []string{"PLANTSTORE_FIXED_TOKEN=short"},
		"serve", "--db", db, "--listen", "127.0.0.1:0")
	if code != 1 || strings.Contains(out+errs, "short") {
		t.Errorf("a short fixed token: exit %d, %q, %q", code, out, errs)
	}
	t.Setenv("PLANTSTORE_FIXED_TOKEN_FILE", file)
	p = testkit.Start(t, db)
	p.Token = "from-a-file-0123456789"
	testkit.WantResponse(t, "PLANTSTORE_FIXED_TOKEN_FILE", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}

// The variables of clients are no fixed token: serve ignores them, and says which variable sets one.
func TestServeIgnoresTheTokenOfClients(t *testing.T) {
	const credential = "a-token-for-reading-elsewhere"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(credential), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PLANTSTORE_TOKEN", credential)
	t.Setenv("PLANTSTORE_TOKEN_FILE", file)
	p := testkit.Start(t, filepath.Join(t.TempDir(), "plants.db"))
	first := p.Token
	p.Token = credential
	testkit.WantError(t, "the token of the client", p.Do(t, "GET", "/plants", ""), 40103)
	p.Token = first
	testkit.WantResponse(t, "the first token", p.Do(t, "GET", "/plants", ""), 200, "[]")
	log := p.Stderr.String()
	for _, variable := range []string{"PLANTSTORE_FIXED_TOKEN", "PLANTSTORE_FIXED_TOKEN_FILE"} {
		if !strings.Contains(log, "to set a fixed token, use "+variable+`"`) {
			t.Errorf("the log does not name %s: %s", variable, log)
		}
	}
	if strings.Contains(log, "fixed token in use") || strings.Contains(log, credential) {
		t.Errorf("the log has the token, or says that it is in use: %s", log)
	}
}

// A token that was issued in the database gets no more rights when it is also the fixed token.
func TestIssuedTokenKeepsItsScope(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	reader := testkit.IssueToken(t, db, "--name", "reader", "--scopes", "plants:read")
	t.Setenv("PLANTSTORE_FIXED_TOKEN", reader)
	p := testkit.Start(t, db)
	p.Token = reader
	testkit.WantError(t, "a create of the reader", p.Create(t, `{"id":1,"name":"x"}`), 40301)
	testkit.WantResponse(t, "a list of the reader", p.Do(t, "GET", "/plants", ""), 200, "[]")
	if log := p.Stderr.String(); !strings.Contains(log, "was issued in this database") || strings.Contains(log, reader) {
		t.Errorf("the log has no warning, or the token: %s", log)
	}
}

func TestFirstTokenIsShownOnce(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			p := testkit.Start(t, db)
			if p.Token == "" || !strings.Contains(p.Stdout.String(), "curl -i "+p.URL+"/plants") {
				t.Fatalf("the first start prints:\n%s", p.Stdout)
			}
			credential := p.Token
			if code := p.Stop(); code != 0 {
				t.Errorf("exit %d", code)
			}
			p = testkit.Start(t, db)
			p.Token = credential
			testkit.WantResponse(t, "the first token after the second start", p.Create(t, `{"id":1,"name":"x"}`), 200,
				`{"name":"x"}`)
			p.Kill() // Then its output is complete.
			if testkit.TokenPattern.MatchString(p.Stdout.String()) {
				t.Errorf("the second start prints a token:\n%s", p.Stdout)
			}
		})
	}
}
