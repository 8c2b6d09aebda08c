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

// Every invalid credential is refused with its own error, stores are separate, a revoked token stops working within two
// seconds, and no token is logged or stored.
func TestCredentials(t *testing.T) {
	for _, e := range testkit.Engines {
		t.Run(e.Name, func(t *testing.T) {
			db := e.Database(t)
			p := testkit.Start(t, db, "--access-log", "all")
			reader := testkit.IssueToken(t, db, "--name", "reader", "--scopes", "plants:read")
			expired := testkit.IssueToken(t, db, "--name", "short", "--expires", "1ms")
			const body = `{"id":1,"name":"x"}`
			for _, test := range []struct {
				what, header string
				number       int
				challenge    string
			}{
				{"none", "Authorization", 40101, `Bearer realm="plantstore"`},
				{"another scheme", "Authorization: Basic eDp5", 40102, `Bearer realm="plantstore"`},
				{"no token", "Authorization: Bearer ", 40102, `Bearer realm="plantstore"`},
				{"a typo", "Authorization: Bearer " + p.Token[:len(p.Token)-2] + p.Token[len(p.Token)-1:] + "-", 40103,
					`error="invalid_token"`},
				{"another service's", "Authorization: Bearer ghp_0123456789", 40103, `error="invalid_token"`},
				{"unknown", "Authorization: Bearer " + unknownToken, 40104, `error="invalid_token"`},
				{"expired", "Authorization: Bearer " + expired, 40105, `error="invalid_token"`},
				{"without the scope", "Authorization: Bearer " + reader, 40301,
					`error="insufficient_scope", scope="plants:create"`},
			} {
				a := p.Do(t, "POST", "/plants", body, testkit.ContentJSON, test.header)
				testkit.WantError(t, test.what, a, test.number)
				challenge := a.Header.Get("WWW-Authenticate")
				if !strings.HasPrefix(challenge, "Bearer ") || !strings.Contains(challenge, test.challenge) {
					t.Errorf("%s: WWW-Authenticate %q, want %q in it", test.what, challenge, test.challenge)
				}
				if test.number <= 40102 && strings.Contains(challenge, "error") {
					t.Errorf("%s: WWW-Authenticate %q names an error although no token was sent", test.what, challenge)
				}
			}
			misplaced := p.Do(t, "GET", "/plants?limit=%zz&access_token="+p.Token, "")
			misplaced.Body += p.Do(t, "GET", "/nowhere/"+p.Token, "").Body
			echoed := p.Do(t, "GET", "/plants/x", "", "X-Request-Id: "+p.Token)
			if strings.Contains(misplaced.Body+echoed.Body+echoed.Header.Get("X-Request-Id"), p.Token) {
				t.Errorf("a misplaced token is in the response: %s %s", misplaced.Body, echoed.Header)
			}
			testkit.WantError(t, "in the query",
				p.Do(t, "POST", "/plants?access_token="+p.Token, body, testkit.ContentJSON, "Authorization"), 40101)
			twice := "POST /plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + p.Token +
				"\r\nAuthorization: Bearer " + p.Token + "\r\nContent-Length: 0\r\n\r\n"
			if status, text := testkit.ParseRaw(p.Raw(t, twice)); status != 401 || !strings.Contains(text, "40102") {
				t.Errorf("two Authorization headers: %d %s", status, text)
			}
			testkit.WantResponse(t, "after all that", p.Do(t, "GET", "/plants", "", "Authorization: bEaReR "+reader), 200, "[]")

			// Stores are separate.
			other := "Authorization: Bearer " + testkit.IssueToken(t, db, "--name", "other", "--store", "other")
			testkit.WantResponse(t, "create", p.Create(t, body), 200, `{"name":"x"}`)
			testkit.WantResponse(t, "the id in another store",
				p.Do(t, "POST", "/plants", `{"id":1,"name":"y"}`, testkit.ContentJSON, other), 200, `{"name":"y"}`)
			testkit.WantResponse(t, "the other store", p.Do(t, "GET", "/plants", "", other), 200, `[{"id":1,"name":"y"}]`)
			testkit.WantError(t, "an id of the first store, asked by the other", p.Do(t, "GET", "/plants/2", "", other), 40401)

			// Another process revokes a token.
			if out, errs, code := testkit.Run(t, nil, "token", "revoke", "--db", db, "first"); code != 0 || out != "" {
				t.Fatalf("token revoke: exit %d %q %q", code, out, errs)
			}
			revoked := time.Now()
			for ; ; time.Sleep(20 * time.Millisecond) {
				sent := time.Now() // The create itself may wait for the disk.
				if p.Create(t, `{"id":1,"name":"x"}`).Status != 200 {
					break
				}
				if sent.Sub(revoked) > 2*time.Second {
					t.Fatal("the token works two seconds after it was revoked")
				}
			}
			testkit.WantError(t, "revoked", p.Create(t, body), 40106)

			// No token is in the log or in the database.
			p.Kill()
			secrets := []string{reader, expired, p.Token, strings.TrimPrefix(other, "Authorization: Bearer ")}
			for _, secret := range secrets {
				if strings.Contains(p.Stderr.String(), secret) {
					t.Error("a token is in the log")
				}
			}
			if e.Name == "sqlite" {
				for _, suffix := range []string{"", "-wal"} {
					content, _ := os.ReadFile(db + suffix)
					for _, secret := range secrets {
						if strings.Contains(string(content), secret) || strings.Contains(string(content), secret[6:36]) {
							t.Errorf("a token is in the database file%s", suffix)
						}
					}
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
				{[]string{"issue", "--name", "ci"}, 1, "exists"},
				{[]string{"issue"}, 2, "1 to 64"},
				{[]string{"issue", "--name", "a b"}, 2, `' '`},
				{[]string{"issue", "--name", "x", "--scopes", "all"}, 2, "plants:create"},
				{[]string{"issue", "--name", "x", "--expires", "soon"}, 2, "90d"},
				{[]string{"issue", "--name", "x", "--store", "a/b"}, 2, "store"},
				{[]string{"revoke", "unknown"}, 1, "token list"},
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
	p.Kill() // Then its output is complete.
	if testkit.TokenPattern.MatchString(p.Stdout.String()) {
		t.Errorf("a first token was issued in addition to the fixed one: %s", p.Stdout)
	}
	out, errs, code := testkit.Run(t, []string{"PLANTSTORE_TOKEN=short"}, "serve", "--db", db, "--listen", "127.0.0.1:0")
	if code != 1 || strings.Contains(out+errs, "short") {
		t.Errorf("a short fixed token: exit %d, %q, %q", code, out, errs)
	}
	t.Setenv("PLANTSTORE_TOKEN_FILE", file)
	p = testkit.Start(t, db)
	p.Token = "from-a-file-0123456789"
	testkit.WantResponse(t, "PLANTSTORE_TOKEN_FILE", p.Create(t, `{"id":1,"name":"x"}`), 200, `{"name":"x"}`)
}

// A client's token in PLANTSTORE_TOKEN gets no more rights when the service is started with that environment.
func TestIssuedTokenKeepsItsScope(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	reader := testkit.IssueToken(t, db, "--name", "reader", "--scopes", "plants:read")
	t.Setenv("PLANTSTORE_TOKEN", reader)
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
