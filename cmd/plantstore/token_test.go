package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/token"
)

// tokensOf reads the tokens of a database file.
func tokensOf(t *testing.T, db string) []token.Token {
	t.Helper()
	st, err := sqlite.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	all, err := st.Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func issue(t *testing.T, db string, args ...string) (credential string) {
	t.Helper()
	got := plantstore(t, nil, append([]string{"token", "issue", "--db", db}, args...)...)
	if got.code != 0 || got.stderr != "" || !regexp.MustCompile(`^plant_[0-9A-Za-z]{36}\n$`).MatchString(got.stdout) {
		t.Fatalf("token issue %q: %+v", args, got)
	}
	return strings.TrimSpace(got.stdout)
}

func TestTokenIssue(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	start := time.Now().Truncate(time.Millisecond)
	first := issue(t, db, "--name", "first")
	issue(t, db, "--name", "second", "--store", "other", "--scopes", "plants:read", "--expires", "90d", "--rate", "5/s")
	all := tokensOf(t, db)
	if len(all) != 2 {
		t.Fatalf("%d tokens, want 2", len(all))
	}
	got := all[0]
	if got.Name != "first" || got.Hash != token.HashOf(first) || got.Store != token.DefaultStore ||
		got.Scopes != token.PlantScopes || got.Rate != (rate.Limit{}) || !got.Expires.IsZero() || got.Created.Before(start) {
		t.Errorf("the first token: %+v", got)
	}
	got = all[1]
	if got.Name != "second" || got.Store != "other" || got.Scopes != token.Read ||
		got.Rate != (rate.Limit{Count: 5, Per: time.Second, Burst: 5}) || got.Expires.Sub(got.Created) != 90*24*time.Hour {
		t.Errorf("the second token: %+v", got)
	}
	plantstore(t, nil, "token", "issue", "--db", db, "--name", "first").want(t, "a name that exists", 4, "",
		"plantstore token issue: "+token.ErrNameTaken.Error()+": \"first\"; "+
			"choose another name, or see plantstore token prune\n")
}

func TestTokenIssueJSON(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	got := plantstore(t, nil, "token", "issue", "--db", db, "--name", "ci", "--scopes", "plants:read", "--expires", "90d",
		"--rate", "5/s", "--json")
	want := regexp.MustCompile(`^{
  "name": "ci",
  "store": "main",
  "scopes": \[
    "plants:read"
  \],
  "expires": "20[^"]*Z?",
  "rate": "5/s",
  "burst": 5,
  "token": "(plant_[0-9A-Za-z]{36})"
}\n$`)
	m := want.FindStringSubmatch(got.stdout)
	if got.code != 0 || got.stderr != "" || m == nil || tokensOf(t, db)[0].Hash != token.HashOf(m[1]) {
		t.Errorf("token issue --json: %+v", got)
	}
	got = plantstore(t, nil, "token", "issue", "--db", db, "--name", "plain", "--json")
	if got.code != 0 || strings.Contains(got.stdout, "expires") || strings.Contains(got.stdout, "rate") {
		t.Errorf("token issue --json of a token without expiry and rate: %+v", got)
	}
	toFullDisk(t, nil, "token", "issue", "--db", db, "--name", "lost", "--json")
}

// Only tokens that ended before the time are removed, and a time in the future, before which valid tokens will
// expire, is refused. A name that is free can be issued again.
func TestTokenPrune(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	issue(t, db, "--name", "ci")
	issue(t, db, "--name", "kept", "--expires", "1d")
	plantstore(t, nil, "token", "revoke", "--db", db, "ci")
	st, err := sqlite.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	past := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	old, _ := token.New("old", "main", token.Read, past, past)
	if err := errors.Join(st.AddToken(t.Context(), old), st.Close()); err != nil {
		t.Fatal(err)
	}
	wrong := func(text string) string {
		return "plantstore token prune: --before is \"" + text +
			"\": use a past date such as 2026-01-01, or an age such as 30d\n"
	}
	for _, test := range []struct {
		before, stdout, stderr string
	}{
		{"", "", wrong("")}, {"yesterday", "", wrong("yesterday")}, {"-1h", "", wrong("-1h")},
		{"2999-01-01", "", wrong("2999-01-01")},
		{"2026-01-02", "tokens removed: 0\n", ""}, {"2026-01-02T04:04:06+01:00", "tokens removed: 1\n", ""},
		{"1h", "tokens removed: 0\n", ""}, {"0s", "tokens removed: 1\n", ""},
	} {
		got := plantstore(t, nil, "token", "prune", "--db", db, "--before", test.before)
		got.want(t, "--before "+test.before, map[bool]int{false: 2}[test.stderr == ""], test.stdout, test.stderr)
	}
	issue(t, db, "--name", "ci")
	if all := tokensOf(t, db); len(all) != 2 || all[0].Name != "kept" || all[1].Name != "ci" {
		t.Errorf("the tokens are %v", all)
	}
}

// Every command that has --db refuses a database in memory, and creates no file of that name.
func TestInMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	n := 0
	refused := func(v variables, args ...string) {
		got := plantstore(t, v, args...)
		n++
		if got.code != 2 || !strings.Contains(got.stderr, "is :memory:, which keeps no plant; use plantstore sandbox") {
			t.Errorf("%v %q: %+v", v, args, got)
		}
	}
	eachCommand(func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("db") == nil {
			return
		}
		example, _, _ := strings.Cut(cmd.Example, "\n")
		refused(nil, append(strings.Fields(example)[1:], "--db", ":memory:")...)
	})
	refused(variables{"PLANTSTORE_DB": ":memory:"}, "token", "list")
	refused(nil, "copy", "--from", ":memory:", "--to", "x")
	refused(nil, "copy", "--from", "x", "--to", ":memory:")
	if files, err := os.ReadDir("."); len(files) > 0 || n < 15 {
		t.Errorf("%d commands; files: %v, %v", n, files, err)
	}
}

// Invalid flags are reported in one line each, and neither a token nor a database is created.
func TestTokenIssueInvalid(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "token"},
		{[]string{"--name", "a b"}, `"a b"`},
		{[]string{"--name", "x", "--store", "a/b"}, `"a/b"`},
		{[]string{"--name", "x", "--scopes", "all"}, `"all"`},
		{[]string{"--name", "x", "--rate", "fast"}, `"fast"`},
		{[]string{"--name", "x", "--burst", "5"}, "burst"},
		{[]string{"--name", "x", "--expires", "0d"}, `--expires is "0d"`},
		{[]string{"--name", "a b", "--store", "c d", "--scopes", "all", "--expires", "soon"}, `"a b"`}, // the first of many
	} {
		got := plantstore(t, nil, append([]string{"token", "issue", "--db", db}, test.args...)...)
		if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, test.want) ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("token issue %q: %+v, want exit 2 and one line with %s", test.args, got, test.want)
		}
	}
	if _, err := os.Stat(db); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database exists after invalid commands: %v", err)
	}
}

// tokenListJSON is the output of token list --json in TestTokenList.
const tokenListJSON = `[
  {
    "name": "ci",
    "store": "main",
    "scopes": [
      "plants:create",
      "plants:read",
      "plants:write"
    ],
    "created": "2026-01-02T03:04:05Z",
    "lastFour": "wxyz"
  },
  {
    "name": "old",
    "store": "s",
    "scopes": [
      "plants:read"
    ],
    "expires": "2026-01-04T03:04:05Z",
    "rate": "30/m",
    "burst": 4,
    "created": "2026-01-02T04:04:05Z",
    "lastUsed": "2026-01-02T05:06:00Z",
    "revoked": "2026-01-03T03:04:05Z",
    "lastFour": "abcd"
  }
]
`

func TestTokenList(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	st, err := sqlite.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, add := range []token.Token{
		{Name: "ci", Hash: token.HashOf("1"), Store: "main", Scopes: token.PlantScopes, Tail: "wxyz", Created: created},
		{Name: "old", Hash: token.HashOf("2"), Store: "s", Scopes: token.Read, Tail: "abcd", Created: created.Add(time.Hour),
			Expires: created.Add(48 * time.Hour), Rate: rate.Limit{Count: 30, Per: time.Minute, Burst: 4},
			LastUsed: time.Date(2026, 1, 2, 5, 6, 0, 0, time.UTC)},
	} {
		if err := st.AddToken(t.Context(), add); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(st.RevokeToken(t.Context(), "old", created.Add(24*time.Hour)), st.Close()); err != nil {
		t.Fatal(err)
	}
	plantstore(t, variables{"PLANTSTORE_DB": db}, "token", "list").want(t, "token list", 0, ""+
		"NAME  STORE  SCOPES                                  RATE           CREATED     "+
		"LAST USED         EXPIRES              REVOKED              LAST 4\n"+
		"ci    main   plants:create plants:read plants:write  -              2026-01-02  "+
		"-                 -                    -                    …wxyz\n"+
		"old   s      plants:read                             30/m, burst 4  2026-01-02  "+
		"2026-01-02 05:06  2026-01-04 03:04:05  2026-01-03 03:04:05  …abcd\n", "")
	plantstore(t, nil, "token", "list", "--db", db, "--json").want(t, "token list --json", 0, tokenListJSON, "")
	toFullDisk(t, nil, "token", "list", "--db", db)
	toFullDisk(t, nil, "token", "list", "--db", db, "--json")
}

func TestTokenRevoke(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	issue(t, db, "--name", "ci")
	start := time.Now().Truncate(time.Millisecond)
	plantstore(t, nil, "token", "revoke", "--db", db, "ci").want(t, "revoke", 0, "", "")
	if all := tokensOf(t, db); all[0].Revoked.Before(start) || all[0].Revoked.After(time.Now()) {
		t.Errorf("revoked at %v, want now", all[0].Revoked)
	}
	old := issue(t, db, "--name", "rotated")
	plantstore(t, nil, "token", "rotate", "--db", db, "rotated")
	got := plantstore(t, nil, "token", "revoke", "--db", db, "rotated")
	want := "rotated." + old[len(old)-4:] + ", which token rotate has replaced, is still valid until 2"
	if got.code != 0 || !strings.HasPrefix(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("revoke a token that was rotated: %+v, want %q", got, want)
	}
	plantstore(t, nil, "token", "revoke", "--db", db, "rotated."+old[len(old)-4:]).want(t, "revoke the old one", 0, "", "")
	plantstore(t, nil, "token", "revoke", "--db", db, "cd").want(t, "revoke an unknown token", 3, "",
		"plantstore token revoke: "+token.ErrUnknown.Error()+": \"cd\"; see plantstore token list\n")
	plantstore(t, nil, "token", "revoke", "--db", db).want(t, "revoke nothing", 2, "",
		"plantstore token revoke: expected arguments: NAME; got: []; see plantstore token revoke --help\n")
}

// A mistyped --db is an error for a command that needs an existing database, and creates none.
func TestMistypedDatabase(t *testing.T) {
	db := filepath.Join(t.TempDir(), "typo.db")
	for _, command := range []string{"token list", "token update ci --rate 1/s", "token rotate ci", "token revoke ci",
		"token prune --before 1d", "store list", "store clear main", "db migrate"} {
		words := strings.Fields(command)
		got := plantstore(t, variables{"PLANTSTORE_DB": db}, words...)
		got.want(t, command, 1, "", "plantstore "+words[0]+" "+words[1]+": --db must be an existing database: stat "+db+
			": no such file or directory\n")
		if _, err := os.Stat(db); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s created a database: %v", command, err)
		}
	}
	for db, want := range map[string]string{
		"mysql://x/y": `--db has the scheme "mysql": use the path of a file or a postgres:// URL`,
		"":            "--db is empty: use the path of a file or a postgres:// URL",
	} {
		got := plantstore(t, nil, "token", "issue", "--name", "x", "--db", db)
		got.want(t, "--db "+db, 2, "", "plantstore token issue: "+want+"\n")
	}
}

// failingStore fails every call of a token command, or only Close.
type failingStore struct {
	storage.Storage
	err, closeErr error
	closed        int
}

func (s *failingStore) Sandboxes(context.Context) ([]storage.Sandbox, error) { return nil, s.err }
func (s *failingStore) Webhooks(context.Context, string) ([]storage.Webhook, error) {
	return nil, s.err
}
func (s *failingStore) AddToken(context.Context, token.Token) error { return s.err }
func (s *failingStore) Tokens(context.Context) ([]token.Token, error) {
	return []token.Token{{Name: "ci"}}, s.err
}
func (s *failingStore) ChangeToken(context.Context, token.Token, token.Token, *token.Token) error {
	return s.err
}
func (s *failingStore) PruneTokens(context.Context, string, time.Time) (int, error) {
	return 0, s.err
}
func (s *failingStore) Migrated() (from, to int)                             { return 3, 3 }
func (s *failingStore) RevokeToken(context.Context, string, time.Time) error { return s.err }
func (s *failingStore) Check(context.Context) error                          { return s.err }
func (s *failingStore) Lanes() int                                           { return 1 }
func (s *failingStore) Stats() storage.Stats                                 { return storage.Stats{} }
func (s *failingStore) Close() error                                         { s.closed++; return s.closeErr }

func TestTokenCommandsFail(t *testing.T) {
	db := tempFile(t, "")
	broken := errors.New("cannot close")
	for _, args := range [][]string{
		{"issue", "--name", "ci"}, {"list"}, {"update", "ci", "--rate", "1/s"}, {"rotate", "ci"}, {"revoke", "ci"},
		{"prune", "--before", "1d"},
	} {
		name := "token " + args[0]
		args = append([]string{"token", args[0], "--db", db}, args[1:]...)
		for _, test := range []struct {
			st      *failingStore
			openErr error
			want    string
		}{
			{&failingStore{err: storage.ErrUnavailable}, nil, storage.ErrUnavailable.Error()},
			{&failingStore{err: storage.ErrFull, closeErr: broken}, nil, storage.ErrFull.Error() + "; cannot close"},
			{&failingStore{closeErr: broken}, nil, "cannot close"},
			{&failingStore{}, errors.New("cannot open"), "cannot open"},
		} {
			got := withStorage(t, nil, test.st, test.openErr, args...)
			got.want(t, name, 1, "", "plantstore "+name+": "+test.want+"\n")
			if want := map[bool]int{true: 1}[test.openErr == nil]; test.st.closed != want {
				t.Errorf("%s: %s: closed %d times, want %d", name, test.want, test.st.closed, want)
			}
		}
	}
}
