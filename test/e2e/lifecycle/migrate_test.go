package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// makeOlder gives a database the schema of version 2, and returns what it contains.
func makeOlder(t *testing.T, db string) (read func() string) {
	t.Helper()
	const drop = "ALTER TABLE tokens DROP COLUMN last_used; DROP TABLE sandboxes; DROP TABLE webhooks; " +
		"DROP TABLE events; DROP TABLE deliveries; DROP TABLE leases"
	if strings.HasPrefix(db, "postgres") {
		testkit.Query(t, db, drop+"; DELETE FROM plantstore_schema WHERE version > 2")
		const all = "SELECT t::text FROM tokens t UNION ALL SELECT v::text FROM plantstore_schema v"
		return func() string { return fmt.Sprint(testkit.Query(t, db, all)) }
	}
	testkit.Query(t, db, drop+"; PRAGMA user_version = 2")
	return func() string {
		text, err := os.ReadFile(db)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// Only serve and db migrate migrate a database. Other commands refuse it and say what to do, or only read it.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	testkit.OnEachDatabase(t, func(t *testing.T, db string) {
		db, other := db, filepath.Join(t.TempDir(), "other.db")
		for _, db := range []string{db, other} {
			testkit.IssueToken(t, db, "--name", "ci")
		}
		read := makeOlder(t, db)
		before := read()
		for args, accepted := range map[string]bool{
			"token list": false, "token issue --name new": false, "token update ci --rate 1/s": false,
			"token rotate ci": false, "token revoke ci": false, "copy --from DB --to " + other: false,
			"copy --to DB --from " + other: false,
			"doctor":                       true,
		} {
			command := strings.Fields(strings.ReplaceAll(args, "DB", db))
			if command[0] != "copy" {
				command = append(command, "--db", db)
			}
			out, errs, code := testkit.Run(t, nil, command...)
			if refused := code == 1 && strings.Contains(errs, "2 and this program needs version 6; make a backup, and run "+
				"plantstore db migrate --db with this "); refused == accepted || (code == 0) != accepted {
				t.Errorf("%s: exit %d, %s%s", args, code, out, errs)
			}
			if read() != before {
				t.Fatalf("%s has changed the database", args)
			}
		}
		for _, want := range []string{
			"The schema was migrated from version 2 to 6.\n", "The schema has version 6: nothing to do.\n",
		} {
			if out, errs, code := testkit.Run(t, nil, "db", "migrate", "--db", db); code != 0 || out != want {
				t.Errorf("db migrate: exit %d, %s%s, want %s", code, out, errs, want)
			}
		}
		const record = `"msg":"the schema of the database was migrated","from":2,"to":6`
		if s := testkit.StartFixed(t, db); strings.Contains(s.Stderr.String(), "migrated") {
			t.Errorf("a start without a migration logs %s", s.Stderr)
		} else {
			s.Stop()
		}
		makeOlder(t, db)
		if s := testkit.StartFixed(t, db); !strings.Contains(s.Stderr.String(), record) {
			t.Errorf("a start with a migration logs %s, want %s", s.Stderr, record)
		}
	})
}
