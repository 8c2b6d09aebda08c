package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/storage"
	"plantstore/internal/storage/storagetest"
)

// examine runs doctor --json and returns the findings of a check.
func examine(t *testing.T, code int, args ...string) (found storage.Findings, of func(check string) string) {
	t.Helper()
	got := plantstore(t, nil, append([]string{"doctor", "--json"}, args...)...)
	err := json.Unmarshal([]byte(got.stdout), &found)
	if err != nil || got.code != code || (got.stderr == "") != (code == 0) {
		t.Fatalf("doctor %q: %+v, %v, want exit %d", args, got, err, code)
	}
	return found, func(check string) (text string) {
		for _, f := range found {
			if f.Check == check {
				text += f.Level + ": " + f.Text + "\n"
			}
		}
		return text
	}
}

// disk is a folder that is not in memory.
func disk(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp(".", "doctor-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

func TestDoctor(t *testing.T) {
	folder := filepath.Join(disk(t), "a[b]")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(folder, "plants.db")
	content, err := os.ReadFile(fileWith(t, storagetest.Record("main", 1, "Fern", "-"))) // which is not in use
	if err == nil {
		err = os.WriteFile(db, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := listFolder(t, folder)
	found, of := examine(t, 0, "--db", db, "--integrity")
	for _, check := range []string{
		"file", "permissions", "tables", "schema", "integrity", "file system", "space", "settings",
	} {
		if !strings.HasPrefix(of(check), "ok: ") && check != "file system" && check != "space" {
			t.Errorf("%s: %q in %v", check, of(check), found)
		}
	}
	if after := listFolder(t, folder); !slices.Equal(after, before) {
		t.Errorf("doctor changed the folder from %q to %q", before, after)
	}
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	_, of = examine(t, 1, "--db", db)
	if !strings.HasPrefix(of("permissions"), "problem: other users can replace files in ") || of("integrity") != "" {
		t.Errorf("permissions: %q, integrity: %q", of("permissions"), of("integrity"))
	}
	got := plantstore(t, nil, "doctor", "--db", db)
	if !strings.Contains(got.stdout, "\nproblem  permissions ") || got.code != 1 {
		t.Errorf("doctor: %+v", got)
	}
}

func listFolder(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name()+" "+info.Mode().String()+" "+info.ModTime().String())
	}
	return names
}

// Databases that serve refuses.
func TestDoctorOfDamage(t *testing.T) {
	folder := disk(t)
	at := func(name string) string { return filepath.Join(folder, name) }
	content, err := os.ReadFile(fileWith(t, storagetest.Record("main", 1, "Fern", "-")))
	if err != nil {
		t.Fatal(err)
	}
	newer, damaged := slices.Clone(content), slices.Clone(content)
	newer[63] = 99                    // user_version
	clear(damaged[2048+8 : 2048+100]) // the first page of the plants
	for name, text := range map[string][]byte{
		"text": []byte(strings.Repeat("hello", 1000)), "newer": newer, "damaged": damaged, "orphan-wal": []byte("x"),
	} {
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"none":    "file: problem: " + at("none") + ": no such file or directory; check --db\n",
		"text":    "schema: problem: the database is unavailable: it is damaged or is not a SQLite database; ",
		"newer":   "schema: problem: its schema has version 99 and this program supports versions up to ",
		"damaged": "integrity: problem: ",
		"orphan":  "file: problem: " + at("orphan") + ": the file is missing or empty, but its WAL ",
	} {
		check, text, _ := strings.Cut(want, ": ")
		if found, of := examine(t, 1, "--db", at(name), "--integrity"); !strings.HasPrefix(of(check), text) {
			t.Errorf("%s: %v, want %q", name, found, want)
		}
	}
	if _, of := examine(t, 1, "--db", at("none")); of("permissions") != "" {
		t.Errorf("permissions of a file that does not exist: %s", of("permissions"))
	}
	if got := plantstore(t, nil, "doctor", "--db", at("damaged"), "--integrity"); strings.Contains(got.stdout, `\n`) ||
		!strings.Contains(got.stdout, " the database is unavailable: it is damaged; restore a backup: ") {
		t.Errorf("doctor --integrity prints %s", got.stdout)
	}
	found, of := examine(t, 1, "--db", folder)
	if len(found) != 2 || !strings.HasPrefix(of("file"), "problem: "+folder+": it is not a regular file") {
		t.Errorf("doctor of a folder: %v", found)
	}
	if err := os.WriteFile(at("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found, of = examine(t, 0, "--db", at("empty"))
	if !strings.Contains(of("schema"), "is empty; serve creates a new database") || of("tables") != "" {
		t.Errorf("doctor of an empty file: %v", found)
	}
	got := plantstore(t, nil, "doctor", "--db", "mysql://x")
	if got.code != 2 || !strings.Contains(got.stderr, "scheme") {
		t.Errorf("doctor of another URL: %+v", got)
	}
	_, of = examine(t, 1, "--db", "postgres://u:Secret@127.0.0.1:1/x")
	if !strings.HasPrefix(of("connection"), "problem: ") || strings.Contains(of("connection"), "Secret") {
		t.Errorf("doctor of a server that does not respond: %q", of("connection"))
	}
}

// The settings of serve in the environment are printed without secrets. Invalid ones are a problem.
func TestDoctorOfSettings(t *testing.T) {
	db := tempFile(t, "postgres://u:Secret@127.0.0.1:1/plants?password=Secret")
	v := variables{"PLANTSTORE_DB_FILE": db, "PLANTSTORE_DRAIN": "5s", "PLANTSTORE_ACME_DOMAIN": "a.example,b.example",
		"PLANTSTORE_FIXED_TOKEN": "Secret", "PLANTSTORE_LISTEN": "[::]:80"}
	got := plantstore(t, v, "doctor")
	for _, want := range []string{"\nok       settings    ",
		" db=postgres://127.0.0.1:1/plants ", " drain=5s ", " listen=[::]:80 ",
		" acme-domain=a.example,b.example ", " PLANTSTORE_FIXED_TOKEN=set\n", " max-body=65536 "} {
		if !strings.Contains(got.stdout, want) || strings.Contains(got.stdout+got.stderr, "Secret") {
			t.Errorf("doctor prints %+v, want %q", got, want)
		}
	}
	v["PLANTSTORE_DRAIN"] = "soon"
	got = plantstore(t, v, "doctor")
	if !strings.Contains(got.stdout, "\nproblem  settings    PLANTSTORE_DRAIN is \"soon\": use a duration") {
		t.Errorf("doctor with a wrong variable: %+v", got)
	}
}
