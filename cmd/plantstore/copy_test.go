package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/internal/plant"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/storage/storagetest"
)

// fileWith creates a database file with plants.
func fileWith(t *testing.T, records ...plant.Record) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plants.db")
	st, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	storagetest.Create(t, st, records...)
	return path
}

func TestCopy(t *testing.T) {
	from := fileWith(t, storagetest.Record("main", 1, "Fern", "shade"), storagetest.Record("main", -2, "é", ""),
		storagetest.Record("other", 1, "Fern", "-"))
	issue(t, from, "--name", "a")
	to := filepath.Join(t.TempDir(), "copy.db")
	const rows = "STORE  PLANTS  SHA-256\n" +
		"main   2       7ea6567b669e0a4ba7273ef31c9dfaa97f163af6a64582630bd01b32714f4c89\n" +
		"other  1       0223f0f6ab434aff8837d6c7a686a86dd3759fc75ba949ca739271b370ce13de\n"
	for i, message := range []string{
		"The target has all plants (3) and tokens (1) of the source; this run created 3 in ",
		"The target has all plants (3) and tokens (1) of the source; this run created 0 in ",
	} {
		got := plantstore(t, nil, "copy", "--from", from, "--to", to)
		if got.code != 0 || got.stdout != rows || !strings.HasPrefix(got.stderr, message) {
			t.Errorf("copy %d: %+v", i+1, got)
		}
	}
	got := plantstore(t, nil, "copy", "--from", from, "--to", to, "--json")
	for _, part := range []string{
		`"store": "main",`, `"sha256": "7ea6567b669e0a4ba7273ef31c9dfaa97f163af6a64582630bd01b32714f4c89"`,
		"\n  \"plants\": 3,\n  \"created\": 0,\n  \"tokens\": 1,\n  \"seconds\": ",
	} {
		if got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, part) {
			t.Errorf("copy --json: %+v, want %s", got, part)
		}
	}
}

func TestCopyIsRefused(t *testing.T) {
	from := fileWith(t, storagetest.Record("main", 1, "Fern", "-"))
	other := fileWith(t, storagetest.Record("main", 2, "Ivy", "-"))
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(from, link); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none.db")
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"", 2, "--from and --to are required"},
		{"--from " + from, 2, "--from and --to are required"},
		{"--from " + from + " --to " + from, 2, "--from and --to are the same database"},
		{"--from " + from + " --to " + link, 2, "--from and --to are the same database"},
		{"--from postgres://a/x --to postgres://a/x", 2, "--from and --to are the same database"},
		{"--from mysql://a --to " + none, 2, `--from has the scheme "mysql": use the path of a file or a postgres:// URL`},
		{"--from " + from + " --to mysql://a", 2, `--to has the scheme "mysql": use the path of a file or a postgres:// URL`},
		{"--from " + from + " --to " + none + " x", 2, `expected arguments: none; got: ["x"]`},
		{"--from " + none + " --to " + none + "2", 1, "--from: open the database " + none + ": no such file or directory"},
		{"--from " + from + " --to " + none + "/x", 1, "--to: open the database " + none + "/x: no such file or directory"},
		{"--from " + from + " --to postgres://127.0.0.1:1/x", 1, "--to: open the database postgres://"},
		{"--from postgres://127.0.0.1:1/x --to " + none, 1, "--from: open the database postgres://"},
		{"--from " + from + " --to " + other, 1, "the target has a plant 2 in store main that the source "},
	} {
		got := plantstore(t, nil, append([]string{"copy"}, strings.Fields(test.args)...)...)
		if got.code != test.code || got.stdout != "" || !strings.HasPrefix(got.stderr, "plantstore copy: "+test.want) ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("copy %s: %+v\nwant exit %d, %s", test.args, got, test.code, test.want)
		}
		for _, path := range []string{none, none + "2"} {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("copy %s created %s", test.args, path)
			}
		}
	}
}
