package client

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/internal/testkit"
)

// The README's commands work in a shell.
func TestShellInREADME(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, runREADME)
}

func runREADME(t *testing.T, s *testkit.Server) {
	script := strings.NewReplacer("\n$ ", "\n", "plant_…", s.Token, "bin/plantstore", testkit.Binary).
		Replace("\n" + testkit.CodeBlock(t, "README.md", "### From the shell", "console"))
	cmd := exec.Command("sh", "-ec", script)
	cmd.Env = append(os.Environ(), "PLANTSTORE_URL="+s.URL)
	out, err := cmd.CombinedOutput()
	if want := `[{"id":2,"name":"Ficus lyrata","tag":"tree"}]`; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}
	env := []string{"PLANTSTORE_URL=" + s.URL, "PLANTSTORE_TOKEN=" + s.Token}
	const tree, none = "ID  NAME          TAG\n2   Ficus lyrata  tree\n", "ID  NAME  TAG\n"
	for tag, want := range map[string]string{"tree": tree, "": none} {
		got, errs, code := testkit.Run(t, env, "plants", "list", "--search", "LYR", "--tag", tag)
		if code != 0 || got != want {
			t.Errorf("plants list --tag %q: exit %d, %s%s, want %s", tag, code, got, errs, want)
		}
	}
}

// The README's commands for operators work while the service runs.
func TestOperateInREADME(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "plantstore.db")
	s := testkit.Start(t, db)
	s.Create(t, `{"id":1,"name":"Fern"}`)
	script := strings.NewReplacer("\n$ ", "\n", "bin/plantstore", testkit.Binary).
		Replace("\n" + testkit.CodeBlock(t, "README.md", "## Operate", "console"))
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PLANTSTORE_DB="+db, "PLANTSTORE_URL="+s.URL, "PLANTSTORE_TOKEN="+s.Token)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	restored := testkit.StartAgain(t, s, filepath.Join(cmd.Dir, "restored.db"))
	testkit.WantResponse(t, "a restored plant", restored.Do(t, "GET", "/plants/1", ""), 200, `{"id":1,"name":"Fern"}`)
}

// The README's program builds in a module of its own next to the checkout, and runs.
func TestGoInREADME(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.Engines[0].Database(t))
	folder := t.TempDir()
	program := testkit.CodeBlock(t, "README.md", "### From Go", "go")
	program = testkit.ReplaceOnce(t, program, "http://127.0.0.1:8080", s.URL)
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	edit := testkit.CodeBlock(t, "README.md", "### From Go", "console")
	edit = testkit.ReplaceOnce(t, edit, "../plantstore", testkit.Root())
	var out []byte
	for _, command := range []string{"go mod init example", strings.TrimPrefix(edit, "$ "), "go run -pgo=off ."} {
		words := strings.Fields(command)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+s.Token, "GOFLAGS=")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		var err error
		if out, err = cmd.Output(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, stderr.Bytes())
		}
	}
	if got, want := string(out), "3 Aloe vera\n"; got != want {
		t.Errorf("the program prints %q, want %q", got, want)
	}
}
