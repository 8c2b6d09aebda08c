package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
)

// drifts are changes of the tables that lose or change confirmed plants or tokens, and what Open and Diagnose say.
var drifts = []struct{ name, change, want string }{
	{"a view", "ALTER TABLE plants RENAME TO others; CREATE VIEW plants AS SELECT * FROM others",
		"table plants is a view and not a table; move it away"},
	{"a missing table", "DROP TABLE tokens", "table tokens lacks the column name TEXT NOT NULL; add it"},
	{"a missing column", "ALTER TABLE tokens DROP COLUMN revoked", "table tokens lacks the column revoked INTEGER"},
	{"another type", recreate("id TEXT NOT NULL, name TEXT NOT NULL, tag TEXT, PRIMARY KEY (store, id)"),
		"table plants lacks the column id INTEGER NOT NULL"},
	{"no NOT NULL", recreate("id INTEGER NOT NULL, name TEXT, tag TEXT, PRIMARY KEY (store, id)"),
		"table plants lacks the column name TEXT NOT NULL"},
	{"another key", recreate("id INTEGER NOT NULL, name TEXT NOT NULL, tag TEXT, PRIMARY KEY (id, store)"),
		"table plants lacks the key (store, id) WITHOUT ROWID STRICT"},
	{"no key", "DROP TABLE plants; CREATE TABLE plants (store TEXT NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, " +
		"tag TEXT) STRICT", "table plants lacks the key (store, id) WITHOUT ROWID STRICT"},
	{"a column that inserts must set", recreate("id INTEGER NOT NULL, name TEXT NOT NULL, tag TEXT, " +
		"price INTEGER NOT NULL, PRIMARY KEY (store, id)"),
		"table plants has the column price INTEGER NOT NULL, which inserts do not set"},
	{"another collation", recreate("id INTEGER NOT NULL, name TEXT NOT NULL collate nocase, tag TEXT, " +
		"PRIMARY KEY (store, id)"), "table plants has a clause COLLATE"},
	{"a conflict clause", recreate("id INTEGER NOT NULL, name TEXT NOT NULL UNIQUE ON CONFLICT REPLACE, tag TEXT, " +
		"PRIMARY KEY (store, id)"), "table plants has a clause ON CONFLICT"},
	{"a missing unique key", `DROP TABLE tokens; CREATE TABLE tokens (name TEXT NOT NULL PRIMARY KEY, hash BLOB NOT NULL,
		store TEXT NOT NULL, scopes TEXT NOT NULL, tail TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER,
		revoked INTEGER, rate TEXT, burst INTEGER, last_used INTEGER) WITHOUT ROWID, STRICT`,
		"table tokens lacks the key UNIQUE (hash)"},
	{"a trigger", `CREATE TRIGGER "my trigger" AFTER INSERT ON PLANTS BEGIN DELETE FROM plants; END`,
		`table plants has the trigger my trigger; run DROP TRIGGER "my trigger"`},
	{"a trigger of tokens", "CREATE TRIGGER t BEFORE UPDATE ON tokens BEGIN SELECT raise(IGNORE); END",
		`table tokens has the trigger t; run DROP TRIGGER "t"`},
}

func recreate(columns string) string {
	return "DROP TABLE plants; CREATE TABLE plants (store TEXT NOT NULL, " + columns + ") WITHOUT ROWID, STRICT"
}

func TestDrift(t *testing.T) {
	for _, d := range drifts {
		path := filepath.Join(t.TempDir(), "plants.db")
		open(t, path).Close()
		other := openOther(t, path)
		script(t, other, d.change)
		wantRefusal(t, path, d.name, d.want, nil)
		if lines := diagnose(t, path); !strings.Contains(lines, "tables problem: "+d.want) {
			t.Errorf("%s: Diagnose() = %s, want %q", d.name, lines, d.want)
		}
	}
}

// What does not change a plant is accepted, and so is a source with a drift: it can be copied.
func TestNoDrift(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.db")
	open(t, path).Close()
	other := openOther(t, path)
	script(t, other, `CREATE INDEX i ON plants (tag); ALTER TABLE plants ADD COLUMN price INTEGER;
		ALTER TABLE plants ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
		ALTER TABLE plants ADD COLUMN upper TEXT NOT NULL GENERATED ALWAYS AS (upper(name));
		CREATE VIEW names AS SELECT name FROM plants;
		CREATE TRIGGER t INSTEAD OF DELETE ON names BEGIN DELETE FROM plants; END`)
	open(t, path).Close()
	if lines := diagnose(t, path); !strings.Contains(lines, "tables ok: ") {
		t.Errorf("Diagnose() = %s", lines)
	}
	script(t, other, "CREATE TRIGGER u AFTER INSERT ON plants BEGIN DELETE FROM plants; END")
	source, err := OpenSource(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	source.Close()
}

// diagnose returns the findings of Diagnose as lines.
func diagnose(t *testing.T, path string) (lines string) {
	for _, f := range Diagnose(t.Context(), path, false) {
		lines += f.Check + " " + f.Level + ": " + f.Text + "\n"
	}
	return lines
}
