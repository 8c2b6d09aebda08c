package lifecycle

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plantstore/test/testkit"
)

// A start that fails prints one sentence and exits with a code.
func TestStartFails(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, text := range map[string]string{"text.db": strings.Repeat("not a database ", 100), "blank": " \n"} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := func(args ...string) []string {
		return append(args, "--listen", "127.0.0.1:0", "--ops-listen", "off")
	}
	for _, test := range []struct {
		what string
		args []string
		code int
		want string // in the message
	}{
		{"not a database", with("--db", path("text.db")), 1, "damaged or is not"},
		{"an unknown flag", []string{"--lisen", ":1"}, 2, "unknown flag: --lisen; see plantstore serve --help"},
		{"an empty token file", with("--db", path("a.db"), "--token-file", path("blank")), 1, "empty"},
		{"a key of another certificate",
			with(append(append(testkit.TLS(t)[:2], testkit.TLS(t)[2:]...), "--db", path("a.db"))...), 1, "does not match"},
	} {
		out, errs, code := testkit.Run(t, nil, append([]string{"serve"}, test.args...)...)
		if code != test.code || !strings.Contains(errs, test.want) {
			t.Errorf("%s: exit %d, stderr %q; want exit %d and %q", test.what, code, errs, test.code, test.want)
		}
		sentences := 0
		for line := range strings.Lines(errs) {
			if !strings.HasPrefix(line, "{") { // not a log record
				sentences++
			}
		}
		if sentences != 1 || strings.Contains(out, "plant_") {
			t.Errorf("%s: %d sentences, stdout %q, stderr %q; want one sentence", test.what, sentences, out, errs)
		}
	}
}

// The binary is static and knows its version.
func TestBinary(t *testing.T) {
	testkit.NotWithRace(t)
	f, err := elf.Open(testkit.Binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	if out, _, _ := testkit.Run(t, nil, "version"); !strings.HasPrefix(out, "plantstore version v0.0.0-test go") {
		t.Errorf("plantstore version prints %q", out)
	}
}

// Files of the database are readable only by their owner, whatever the umask.
func TestFileMode(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, db)
	p.Create(t, `{"id":1,"name":"x"}`)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(db + suffix)
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != 0o600 {
			t.Errorf("the mode of the file%s is %v, want 0600", suffix, info.Mode())
		}
	}
}
