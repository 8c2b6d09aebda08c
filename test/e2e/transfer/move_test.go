package transfer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/test/testkit"
)

type summary struct {
	Plants, Created int64
	Tokens          int
}

// runJSON runs a command that prints the content of a database as JSON, and must succeed.
func runJSON(t *testing.T, args ...string) (s summary) {
	t.Helper()
	stdout, stderr, code := testkit.Run(t, nil, append(args, "--json")...)
	if code != 0 {
		t.Fatalf("plantstore %q: exit %d, %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil {
		t.Fatal(err, stdout)
	}
	return s
}

// access is a client of the service: its token, and what a request with it must return.
type access struct {
	token  string
	status int
	body   string
}

// fillOverHTTP creates plants of several stores and tokens of all kinds through the service, and returns how clients
// must be able to use them afterwards.
func fillOverHTTP(t *testing.T, s *testkit.Server, db string) (clients []access, plants int64) {
	t.Helper()
	for _, body := range naughty() {
		if a, err := s.Send("POST", "/plants", body); err != nil || a.Status != 200 {
			t.Fatalf("%.100s: %v, %v", body, a, err)
		}
	}
	plants = int64(len(naughty()))
	read := func(token string) testkit.Response {
		return s.Do(t, "GET", "/plants/1", "", "Authorization: Bearer "+token)
	}
	for i, name := range []string{"ltd", "one", "two", "empty"} {
		token := testkit.IssueToken(t, db, "--name", name, "--store", "store-"+name, "--rate", fmt.Sprint(i*1000+1000, "/s"))
		if name != "empty" {
			a := s.Do(t, "POST", "/plants", `{"id":1,"name":"`+name+`"}`, testkit.ContentJSON, "Authorization: Bearer "+token)
			testkit.WantResponse(t, "create", a, 200, `{"name":"`+name+`"}`)
			plants++
		}
		a := read(token)
		clients = append(clients, access{token, a.Status, a.Body})
	}
	revoked := testkit.IssueToken(t, db, "--name", "revoked")
	if _, stderr, code := testkit.Run(t, nil, "token", "revoke", "--db", db, "revoked"); code != 0 {
		t.Fatal(stderr)
	}
	a := read(revoked)
	if a.Status != 401 {
		t.Errorf("a revoked token: %d %s", a.Status, a.Body)
	}
	return append(clients, access{revoked, a.Status, a.Body}), plants
}

// wantClients checks that every client is served as before the move.
func wantClients(t *testing.T, s *testkit.Server, clients []access) {
	t.Helper()
	for _, c := range clients {
		a := s.Do(t, "GET", "/plants/1", "", "Authorization: Bearer "+c.token)
		testkit.WantResponse(t, "read", a, c.status, c.body)
	}
}

// wantCreates checks that creates of before the move can be repeated.
func wantCreates(t *testing.T, s *testkit.Server) {
	t.Helper()
	testkit.WantResponse(t, "a create of before", s.Create(t, `{"id":3,"name":"","tag":" "}`), 200,
		`{"name":"","tag":" "}`)
	testkit.WantError(t, "a taken id", s.Create(t, `{"id":3,"name":"x"}`), 40009)
}

// follow runs the commands below a heading of docs/backup.md, with other words in place of some of its own. It returns
// the service that they start, for which clients have the tokens of s, and what the last command prints.
func follow(t *testing.T, s *testkit.Server, heading, want string, words map[string]string) (*testkit.Server, string) {
	t.Helper()
	var ran, printed string
	for line := range strings.Lines(testkit.CodeBlock(t, "docs/backup.md", heading, "console")) {
		command := strings.Fields(strings.TrimPrefix(line, "$ "))
		for i, word := range command {
			command[i] = cmp.Or(words[word], word)
		}
		ran += command[1] + " "
		switch {
		case command[0] != "plantstore": // createdb, which the test has done
		case command[1] == "serve":
			cmd := exec.Command(testkit.Binary, command[1:]...)
			cmd.Env = append(os.Environ(), "PLANTSTORE_LISTEN=127.0.0.1:0", "PLANTSTORE_OPS_LISTEN=127.0.0.1:0")
			started := testkit.Launch(t, cmd)
			started.WaitServing()
			started.Token = s.Token
			s = started
		default:
			stdout, stderr, code := testkit.Run(t, []string{"PLANTSTORE_TOKEN=" + s.Token}, command[1:]...)
			if code != 0 {
				t.Fatalf("%s: exit %d, %s", line, code, stderr)
			}
			printed = stdout
		}
	}
	if ran != want+" " {
		t.Fatalf("docs/backup.md runs %q, want %q", ran, want)
	}
	return s, printed
}

// The commands in docs/backup.md move a store from SQLite to PostgreSQL.
func TestDocumentedMove(t *testing.T) {
	t.Parallel()
	file, url := testkit.Engines[0].Database(t), pgtest.Database(t)
	s := testkit.Start(t, file)
	clients, _ := fillOverHTTP(t, s, file)
	if code := s.Stop(); code != 0 {
		t.Fatalf("serve ended with %d", code)
	}
	s, _ = follow(t, s, "## Copy to another database", "plants copy serve",
		map[string]string{"plantstore.db": file, "postgres://user:password@host/plants": url})
	wantClients(t, s, clients)
	wantCreates(t, s)
}
