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
		got.Scopes != token.AllScopes || got.Rate != (rate.Limit{}) || !got.Expires.IsZero() || got.Created.Before(start) {
		t.Errorf("the first token: %+v", got)
	}
	got = all[1]
	if got.Name != "second" || got.Store != "other" || got.Scopes != token.Read ||
		got.Rate != (rate.Limit{Count: 5, Per: time.Second, Burst: 5}) || got.Expires.Sub(got.Created) != 90*24*time.Hour {
		t.Errorf("the second token: %+v", got)
	}
	plantstore(t, nil, "token", "issue", "--db", db, "--name", "first").want(t, "a name that exists", 4, "",
		"plantstore token issue: "+token.ErrNameTaken.Error()+": \"first\"; "+
			"choose another name; the name of a revoked token can't be used again\n")
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
		{Name: "ci", Hash: token.HashOf("1"), Store: "main", Scopes: token.AllScopes, Tail: "wxyz", Created: created},
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

// A mistyped --db is an error for a command that needs existing tokens, and creates no database.
func TestMistypedDatabase(t *testing.T) {
	db := filepath.Join(t.TempDir(), "typo.db")
	for _, args := range [][]string{{"list"}, {"update", "ci", "--rate", "1/s"}, {"rotate", "ci"}, {"revoke", "ci"}} {
		command := "token " + args[0]
		got := plantstore(t, variables{"PLANTSTORE_DB": db}, append([]string{"token"}, args...)...)
		got.want(t, command, 1, "", "plantstore "+command+": --db must be an existing database: stat "+db+
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

func (s *failingStore) AddToken(context.Context, token.Token) error { return s.err }
func (s *failingStore) Tokens(context.Context) ([]token.Token, error) {
	return []token.Token{{Name: "ci"}}, s.err
}
func (s *failingStore) ChangeToken(context.Context, token.Token, token.Token, *token.Token) error {
	return s.err
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
