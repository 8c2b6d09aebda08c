package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"plantstore/internal/rate"
	"plantstore/internal/storage"
	"plantstore/internal/storage/postgres/pgtest"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

// drifts are changes of the tables that lose or change confirmed plants or tokens, and what Open and Diagnose say.
var drifts = []struct{ name, change, want string }{
	{"a view", "ALTER TABLE plants RENAME TO others; CREATE VIEW plants AS SELECT * FROM others",
		"table plants is not an ordinary table (relkind v); move it away"},
	{"a partitioned table", "DROP TABLE plants; CREATE TABLE plants (store text COLLATE \"C\", id bigint, " +
		"name text COLLATE \"C\" NOT NULL, tag text COLLATE \"C\", PRIMARY KEY (store, id)) PARTITION BY HASH (id)",
		"table plants is not an ordinary table (relkind p)"},
	{"a missing table", "DROP TABLE tokens", "table tokens lacks the column name text"},
	{"a missing column", "ALTER TABLE tokens DROP COLUMN revoked", "table tokens lacks the column revoked bigint; add it"},
	{"another type", "ALTER TABLE plants ALTER id TYPE integer", "table plants lacks the column id bigint NOT NULL"},
	{"another collation", `ALTER TABLE plants ALTER store TYPE text COLLATE "POSIX"`,
		`table plants lacks the column store text COLLATE "C" NOT NULL`},
	{"no NOT NULL", "ALTER TABLE plants ALTER name DROP NOT NULL", "table plants lacks the column name text COLLATE"},
	{"no key", "ALTER TABLE plants DROP CONSTRAINT plants_pkey", "table plants lacks the key PRIMARY KEY (store, id)"},
	{"another key", "ALTER TABLE tokens DROP CONSTRAINT tokens_pkey, ADD PRIMARY KEY (hash)",
		"table tokens lacks the key PRIMARY KEY (name)"},
	{"a missing unique key", "ALTER TABLE tokens DROP CONSTRAINT tokens_hash_key",
		"table tokens lacks the key UNIQUE (hash)"},
	{"a foreign key", "CREATE TABLE stores (name text COLLATE \"C\" PRIMARY KEY); ALTER TABLE plants ADD CONSTRAINT f " +
		"FOREIGN KEY (store) REFERENCES stores ON DELETE CASCADE", "table plants has the foreign key f; run ALTER TABLE"},
	{"a column that inserts must set", "ALTER TABLE plants ADD COLUMN price int NOT NULL",
		"table plants has the column price integer NOT NULL, which inserts do not set; drop the column"},
	{"an UNLOGGED table", "ALTER TABLE plants SET UNLOGGED", "table plants is UNLOGGED, so a crash empties it; run ALTER"},
	{"an UNLOGGED table of versions", "ALTER TABLE plantstore_schema SET UNLOGGED", "table plantstore_schema is UNLOGGED"},
	{"row security", "ALTER TABLE plants ENABLE ROW LEVEL SECURITY", "table plants has row security; run ALTER TABLE"},
	{"a rule", "CREATE RULE nothing AS ON DELETE TO tokens DO INSTEAD NOTHING",
		"table tokens has the rule nothing; run DROP RULE nothing ON tokens"},
	{"a trigger", "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';" +
		`CREATE TRIGGER "my trigger" BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION f()`,
		`table plants has the trigger "my trigger"; run DROP TRIGGER "my trigger" ON plants`},
}

func TestDrift(t *testing.T) {
	t.Parallel()
	for _, d := range drifts {
		address := pgtest.Database(t)
		openStorage(t, address).Close()
		for _, change := range strings.SplitAfter(d.change, "END';") {
			sqlQuery(t, address, change)
		}
		wantOpenError(t, address, d.want)
		wantFindings(t, findings(t, address), "problem: ", d.want)
		s, err := Open(t.Context(), address, Options{UnsafeDurability: true})
		if accepted := strings.Contains(d.want, "UNLOGGED"); (err == nil) != accepted {
			t.Errorf("%s: Open() with unsafe durability = %v", d.name, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// What does not change a plant is accepted, and so is a source with a drift: it can be copied. A value
// of another type is no zero value.
func TestNoDrift(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	openStorage(t, address).Close()
	sqlQuery(t, address, `CREATE INDEX ON plants (tag); ALTER TABLE plants ADD COLUMN price int,
		ADD COLUMN seen timestamptz NOT NULL DEFAULT now(), ADD COLUMN serial bigint GENERATED ALWAYS AS IDENTITY;
		CREATE TABLE orders (store text COLLATE "C", id bigint, FOREIGN KEY (store, id) REFERENCES plants);
		CREATE VIEW names AS SELECT name FROM plants`)
	wantFindings(t, findings(t, address), "tables ok: ")
	s := openStorage(t, address)
	storagetest.Create(t, s, record(1))
	add := token.Token{Name: "t", Created: time.UnixMilli(1), Rate: rate.Limit{Count: 1, Per: time.Second, Burst: 7}}
	if err := s.AddToken(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	s.Close()
	sqlQuery(t, address, "ALTER TABLE plants ENABLE ROW LEVEL SECURITY; ALTER TABLE tokens ALTER burst TYPE text")
	source, err := Open(t.Context(), address, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if all, err := source.Tokens(t.Context()); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("with a text as the burst, Tokens() = %v, %v", all, err)
	}
}

// findings returns the findings of Diagnose as lines.
func findings(t *testing.T, address string) (lines string) {
	t.Helper()
	for _, f := range Diagnose(t.Context(), address, nil) {
		lines += f.Check + " " + f.Level + ": " + f.Text + "\n"
	}
	if strings.Contains(lines, pgtest.Password) {
		t.Errorf("Diagnose() shows the password: %s", lines)
	}
	return lines
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	wantFindings(t, findings(t, address), "schema warning: there are no tables", "privileges ok: ",
		"durability ok: the server: ", "server ok: PostgreSQL ")
	if n := len(sqlQuery(t, address, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'")); n != 0 {
		t.Errorf("Diagnose() creates %d tables", n)
	}
	storagetest.Create(t, openStorage(t, address), record(1))
	lines := findings(t, address)
	wantFindings(t, lines, "connection ok: postgres://", "privileges ok: ", "durability ok: the server: ",
		"schema ok: ")
	if strings.Contains(lines, "problem") || strings.Contains(lines, "warning") {
		t.Errorf("Diagnose() = %s", lines)
	}
	wantFindings(t, findings(t, address+"&synchronous_commit=off"),
		"durability problem: the server runs with synchronous_commit=off", "set it to on")
	reader, _ := grant(t, address, "GRANT SELECT ON plants, tokens, plantstore_schema TO USER")
	wantFindings(t, findings(t, reader),
		"privileges problem: the user lacks INSERT ON plants, UPDATE ON plants, DELETE ON plants, INSERT ON tokens, ")
	sqlQuery(t, address, "INSERT INTO plantstore_schema (version) VALUES (99)")
	wantFindings(t, findings(t, address), "schema problem: version 99 is newer than this program; start the newer program")
	wantFindings(t, findings(t, "postgres://u:x@127.0.0.1:1/d"), "connection problem: ")
}

func wantFindings(t *testing.T, lines string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(lines, want) {
			t.Errorf("Diagnose() = %s\nwant %q", lines, want)
		}
	}
}
