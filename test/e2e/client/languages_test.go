package client

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	plants "plantstore/client"
	"plantstore/test/testkit"
	"plantstore/test/testkit/missing"
)

const sandboxPage = "docs/sandbox.md"

// goProgram is the program around the example in Go.
const goProgram = `package main
import ("context"; "fmt"; "io"; "log"; "net/http"; "os"; "strings"; "plantstore/client")
func main() { ctx, service := context.Background(), os.Getenv("PLANTSTORE_URL")
EXAMPLE}
func check(err error) { if err != nil { log.Fatal(err) } }
`

// runExample writes a program to a file and runs it.
func runExample(t *testing.T, s *testkit.Server, file, program string, command ...string) string {
	t.Helper()
	if _, err := exec.LookPath(command[0]); err != nil && command[0] == "python3" {
		missing.Optional(t, "%v", err)
	} else if err != nil {
		testkit.Unavailable(t, "%v", err)
	}
	path := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], append(command[1:], path)...)
	cmd.Env = append(os.Environ(), "PLANTSTORE_URL="+s.URL, "GOFLAGS=-pgo=off", "GITHUB_ENV="+path+".env")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
	return string(out)
}

// session returns the commands of a console, and what they print.
func session(console string) (commands, printed string) {
	output := regexp.MustCompile(`(?m)^[^$].*\n`)
	commands = strings.ReplaceAll("\n"+output.ReplaceAllString(console, ""), "\n$ ", "\n")
	return commands, strings.Join(output.FindAllString(console, -1), "")
}

// The sandbox of the README prints what it shows.
func TestSandboxInREADME(t *testing.T) {
	t.Parallel()
	commands, want := session(testkit.CodeBlock(t, "README.md", "### A sandbox for your tests", "console"))
	if got, _ := shell(t, strings.ReplaceAll(commands, "bin/plantstore", testkit.Binary)); got+"\n" != want {
		t.Errorf("the commands print %s, want %s", got, want)
	}
}

// Each example lists the plants of a sandbox, loses the response of a create, repeats it, and prints both requests.
func TestLanguages(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.Engines[0].Database(t), "--sandbox")
	host, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	here := strings.NewReplacer("http://127.0.0.1:8080", s.URL, `"127.0.0.1", 8080`, `"`+host+`", `+port)
	plain := strings.NewReplacer(`"`, "", `'`, "", `\`, "", " ", "") // the quotes differ
	want := regexp.MustCompile(`(?s)\[{id:1,name:Monsteradeliciosa,tag:climber},{id:2,.*times:1,left:1.*Fern.*` +
		`{number:3,[^\n]*body:{id:20,name:Fern},status:200},` +
		`{number:2,[^\n]*body:{id:20,name:Fern},status:503,error:50302,fault:code=503;when=after}\]`)
	for heading, e := range map[string]struct {
		language, file string
		command        []string
	}{
		"curl":       {"console", "example.sh", []string{"bash", "-e"}},
		"Go":         {"go", "main.go", []string{"go", "run"}},
		"JavaScript": {"js", "example.mjs", []string{"node"}},
		"Python":     {"python", "example.py", []string{"python3"}},
	} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			program, printed := here.Replace(testkit.CodeBlock(t, sandboxPage, "### "+heading, e.language)), ""
			switch e.language {
			case "console":
				program, printed = session(program)
			case "go":
				program = strings.Replace(goProgram, "EXAMPLE", program, 1)
			}
			got := runExample(t, s, e.file, program, e.command...)
			if !strings.HasPrefix(got, printed) || !want.MatchString(plain.Replace(got)) {
				t.Errorf("the example prints\n%s\nwant\n%s%s", got, printed, want)
			}
		})
	}
}

// The client passes the retry test of the page, with the rule of the page and with a drop.
func TestRetryRecipe(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.Engines[0].Database(t), "--sandbox")
	recipe := testkit.CodeBlock(t, sandboxPage, "### The retry test of an SDK", "console")
	rule := regexp.MustCompile(`\[{.*}\]`).FindString(recipe)
	for rule, status := range map[string]int{rule: 503, testkit.ReplaceOnce(t, rule, `"code":503`, `"drop":true`): 0} {
		box, err := plants.NewSandbox(t.Context(), s.URL, plants.WithSandbox("empty", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		defer box.Close()
		to := testkit.Target{URL: s.URL, Token: box.Token}
		if a, err := to.Send("PUT", "/faults", rule); err != nil || a.Status != 200 {
			t.Fatalf("PUT /faults %s = %d %s, %v", rule, a.Status, a.Body, err)
		}
		fern := plants.NewPlant{ID: 1, Plant: plants.Plant{Name: "Fern"}}
		if _, err := box.Client.Create(t.Context(), fern); err != nil {
			t.Error(err)
		}
		list, _ := to.Send("GET", "/plants", "")
		testkit.WantResponse(t, "list", list, 200, `[{"id":1,"name":"Fern"}]`)
		sent, _ := to.Send("GET", "/requests", "")
		want := regexp.MustCompile(fmt.Sprintf(`"POST".*"status":200\b.*"POST".*"status":%d\b.*when=after"`, status))
		if !want.MatchString(sent.Body) || strings.Count(sent.Body, `"POST"`) != 2 {
			t.Errorf("the requests are %s, want %s", sent.Body, want)
		}
	}
}

// The step of a CI job creates a sandbox on a server, and sets its token for the steps that follow.
func TestCIRecipe(t *testing.T) {
	t.Parallel()
	s := testkit.Start(t, testkit.Engines[0].Database(t), "--sandbox")
	page, err := os.ReadFile(filepath.Join(testkit.Root(), sandboxPage))
	step := regexp.MustCompile(`(?s)- run: \|\n(.*?)\n +- run: npm test`).FindSubmatch(page)
	if err != nil || step == nil {
		t.Fatalf("%s has no step that creates a sandbox: %v", sandboxPage, err)
	}
	script := string(step[1]) + "\ncat \"$GITHUB_ENV\"\n"
	out := runExample(t, s, "step.sh", script, "bash", "-e")
	_, s.Token, _ = strings.Cut(strings.TrimSpace(out), "PLANTSTORE_TOKEN=")
	a := s.Do(t, "GET", "/plants?limit=1", "")
	if a.Status != 200 || !strings.HasPrefix(out, "::add-mask::"+s.Token+"\n") {
		t.Errorf("the step prints %s, and its token gets %d %s", out, a.Status, a.Body)
	}
}
