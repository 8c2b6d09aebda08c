package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/internal/store/sqlite"
)

func TestDistributeUsage(t *testing.T) {
	for _, test := range []struct {
		args, stderr string
		code         int
	}{
		{"--by name", `--by is "name": use id or store`, 2},
		{"--shards -1", "--shards is -1: use 1 to 1024", 2},
		{"--shards 1025", "--shards is 1025: use 1 to 1024", 2},
		{"--db plants.db", "--db must be the postgres:// URL of the coordinator of a Citus cluster", 2},
		{"--db postgres://127.0.0.1:1/plants", "distribute the database postgres://", 1},
		{"extra", `expected arguments: none; got: ["extra"]`, 2},
	} {
		r := plantstore(t, nil, append([]string{"db", "distribute"}, strings.Fields(test.args)...)...)
		if r.code != test.code || !strings.HasPrefix(r.stderr, "plantstore db distribute: "+test.stderr) || r.stdout != "" {
			t.Errorf("db distribute %s: exit %d\nstdout %q\nstderr %q\nwant exit %d and %q",
				test.args, r.code, r.stdout, r.stderr, test.code, test.stderr)
		}
	}
}

const statusOfFile = `database         \S+plants.db
engine           SQLite 3\.\d+\.\d+
schema           version 3
plants           0
tokens           1
journal mode     wal
synchronous      FULL
file             \d+\.\d KiB
write-ahead log  0 B
pages in both    \d+ of \d+ bytes, 0 of them free
`

func TestStatusOfFile(t *testing.T) {
	db := filepath.Join(t.TempDir(), "plants.db")
	r := plantstore(t, nil, "db", "status", "--db", db)
	if r.code != 1 || !strings.Contains(r.stderr, "--db must be an existing database") {
		t.Errorf("db status of a missing file: exit %d, %s", r.code, r.stderr)
	}
	if _, err := os.Stat(db); err == nil {
		t.Error("db status creates a file")
	}
	plantstore(t, nil, "token", "issue", "--db", db, "--name", "ci")
	want := 0
	if sqlite.InMemory(db) {
		want = 1
	}
	r = plantstore(t, nil, "db", "status", "--db", db)
	if r.code != want || !regexp.MustCompile("^"+statusOfFile+"$").MatchString(r.stdout) {
		t.Errorf("db status: exit %d, want %d\n%s%s", r.code, want, r.stdout, r.stderr)
	}
	r = plantstore(t, nil, "db", "status", "--json", "--db", db)
	if r.code != want || !strings.Contains(r.stdout, `"tokens": 1,`) || !strings.Contains(r.stdout, `"engine": "sqlite"`) {
		t.Errorf("db status --json: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := plantstore(t, nil, "db", "status", "--db", "mysql://x"); r.code != 2 || !strings.Contains(r.stderr, "scheme") {
		t.Errorf("db status of another URL: %+v", r)
	}
	for db, text := range map[string]string{
		t.TempDir():                "it is not a regular file",
		tempFile(t, "not a file"):  "file is not a database",
		"postgres://127.0.0.1:1/x": "no server listens at its address",
	} {
		if r := plantstore(t, nil, "db", "status", "--db", db); r.code != 1 || !strings.Contains(r.stderr, text) {
			t.Errorf("db status --db %s: exit %d\n%s\nwant %s", db, r.code, r.stderr, text)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 19: "2.5 MiB", 1 << 51: "2048.0 TiB",
	} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}
