package client

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// script returns the commands of a document below a heading, with other texts in place of some of its own.
func script(t *testing.T, file, heading string, replace ...string) string {
	t.Helper()
	replace = append([]string{"\n$ ", "\n", "bin/plantstore", testkit.Binary}, replace...)
	return strings.NewReplacer(replace...).Replace("\n" + testkit.CodeBlock(t, file, heading, "console"))
}

// shell runs a script that must succeed, in a new folder.
func shell(t *testing.T, script string, env ...string) (output, folder string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", script, err, out)
	}
	return string(out), cmd.Dir
}

// The README's commands print what it shows, on each engine.
func TestShellInREADME(t *testing.T) {
	t.Parallel()
	testkit.OnEachEngine(t, runREADME)
}

func runREADME(t *testing.T, s *testkit.Server) {
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## First requests\n")
	section, _, ok := strings.Cut(section, "\n### From Go\n")
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(section, -1)
	if !ok || len(blocks) != 4 {
		t.Fatalf("README.md has %d blocks of requests", len(blocks))
	}
	var all strings.Builder
	for _, m := range blocks {
		all.WriteString(m[1])
	}
	here := strings.NewReplacer("plant_…", s.Token, "http://127.0.0.1:8080", s.URL)
	start := here.Replace(testkit.CodeBlock(t, "README.md", "## Start", "console"))
	if got, want := s.Stdout.String(), strings.TrimPrefix(start, "$ make run\n"); !strings.HasPrefix(got, want) {
		t.Errorf("serve prints %q, want %q", got, want)
	}
	commands, want := session(all.String())
	out, err := exec.Command("bash", "-ec", here.Replace(commands)).CombinedOutput()
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
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

// The command of the playground serves a public address, and gives each reader a sandbox. An address is counted as the
// proxy names it.
func TestPlayground(t *testing.T) {
	t.Parallel()
	command := script(t, "docs/playground.md", "## Start the service", "plantstore serve", testkit.Binary+" serve")
	cmd := exec.Command("sh", "-ec", "exec "+strings.TrimSpace(command))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PLANTSTORE_LISTEN=127.0.0.1:0", "PLANTSTORE_OPS_LISTEN=")
	s := testkit.Launch(t, cmd)
	s.WaitServing()
	_, rest, _ := strings.Cut(s.Stderr.String(), `"listening":"`)
	address, _, _ := strings.Cut(rest, `"`)
	s.URL = "http://" + address
	reader := func(n int) testkit.Response {
		return s.Do(t, "POST", "/sandboxes", "", "Authorization", "Origin: https://docs.example",
			fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", n))
	}
	a := reader(1)
	s.Token = testkit.TokenPattern.FindString(a.Body)
	testkit.WantResponse(t, "remove", s.Do(t, "DELETE", "/plants/1", ""), 204, "")
	if got := a.Header.Get("Access-Control-Allow-Origin"); a.Status != 201 || got != "https://docs.example" {
		t.Errorf("a page of the documentation gets %d %s and may not use the API: %q", a.Status, a.Body, got)
	}
	for n := 1; a.Status == 201 && n < 100; n++ {
		a = reader(1)
	}
	testkit.WantError(t, "one sandbox more", a, 42904)
	if a := reader(2); a.Status != 201 {
		t.Errorf("another reader gets %d %s", a.Status, a.Body)
	}
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
	for _, command := range []string{"go mod init example", strings.TrimPrefix(edit, "$ "), "go run -pgo=off ."} {
		words := strings.Fields(command)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "PLANTSTORE_TOKEN="+s.Token, "GOFLAGS=")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if _, err := cmd.Output(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, stderr.Bytes())
		}
	}
	testkit.WantResponse(t, "the program's plant", s.Do(t, "GET", "/plants/3", ""), 200, `{"id":3,"name":"Aloe vera"}`)
}
