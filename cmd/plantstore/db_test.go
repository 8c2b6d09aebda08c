package main

import (
	"strings"
	"testing"
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
