package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/internal/storage/storagetest"
)

func TestBackup(t *testing.T) {
	db := fileWith(t, storagetest.Record("main", 1, "Fern", "shade"), storagetest.Record("main", -2, "é", ""))
	issue(t, db, "--name", "a")
	to := filepath.Join(t.TempDir(), "backup")
	restored := filepath.Join(t.TempDir(), "restored.db")
	for _, args := range [][]string{
		{"backup", "--db", db, "--to", to}, {"backup", "--verify", to}, {"restore", to, "--db", restored},
	} {
		got := plantstore(t, nil, args...)
		const counts = "ed (plants: 2, tokens: 1, webhook endpoints: 0) in "
		if got.code != 0 || got.stdout != "" || !strings.Contains(got.stderr, counts) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	got := plantstore(t, nil, "backup", "--verify", to, "--json")
	if got.code != 0 || !strings.HasPrefix(got.stdout, `{
  "plants": 2,
  "tokens": 1,
  "webhooks": 0,
  "seconds": `) {
		t.Errorf("backup --verify --json: %+v", got)
	}
}

func TestBackupIsRefused(t *testing.T) {
	db := fileWith(t, storagetest.Record("main", 1, "Fern", "-"))
	to, none := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "none")
	plantstore(t, nil, "backup", "--db", db, "--to", to)
	text, empty := tempFile(t, "hello"), tempFile(t, "")
	wal := filepath.Join(t.TempDir(), "plants.db")
	if err := os.WriteFile(wal+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const tools = "--db must be the path of a file; for PostgreSQL, use pg_dump and pg_restore, or pg_basebackup: " +
		"see https://www.postgresql.org/docs/current/backup.html\n"
	const noChecksum = " does not end with a checksum: it is truncated, or was not written by plantstore backup\n"
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"backup", 2, "one of --to and --verify is required\n"},
		{"backup --to x --verify x", 2, "one of --to and --verify is required\n"},
		{"backup --to x x", 2, `expected arguments: none; got: ["x"]`},
		{"backup --db postgres://a/b --to x", 2, tools},
		{"backup --db " + db + " --to " + to, 1, "back up to " + to + ": the file exists; name another one\n"},
		{"backup --db " + none + " --to " + none, 1, "back up to " + none + ": copy the database " + none + ": no such file"},
		{"backup --db " + empty + " --to " + none, 1, "back up to " + none + ": copy the database " + empty +
			": it has no tables of Plant Store; use a file that serve has created\n"},
		{"backup --verify " + text, 1, text + noChecksum},
		{"restore", 2, "expected arguments: FILE; got: []"},
		{"restore x --db postgres://a/b", 2, tools},
		{"restore " + db + " --db " + none, 1, "restore to " + none + ": " + db + noChecksum},
		{"restore " + to + " --db " + db, 1, "--db: " + db + " exists; name another file, or move it away\n"},
		{"restore " + to + " --db " + wal, 1, "--db: " + wal + "-wal exists; name another file, or move it away\n"},
	} {
		got := plantstore(t, nil, strings.Fields(test.args)...)
		name, _, _ := strings.Cut(test.args, " ")
		if got.code != test.code || got.stdout != "" || !strings.HasPrefix(got.stderr, "plantstore "+name+": "+test.want) ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: %+v\nwant exit %d, %s", test.args, got, test.code, test.want)
		}
		if _, err := os.Stat(none); err == nil {
			t.Fatalf("%s created %s", test.args, none)
		}
	}
}
