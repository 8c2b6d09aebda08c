package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plantstore/client"
	"plantstore/internal/storage"
	"plantstore/internal/token"
)

type variables = map[string]string

type result struct {
	stdout, stderr string
	code           int
}

// plantstore runs the program in this process.
func plantstore(t *testing.T, v variables, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t, v, &stdout, &stderr, args...)
	return result{stdout.String(), stderr.String(), code}
}

// run runs the program with variables.
func run(t *testing.T, v variables, stdout, stderr io.Writer, args ...string) int {
	t.Helper()
	return environment{stdout, stderr, v, openStorage}.run(t.Context(), args)
}

// want compares the exit code and the whole output.
func (r result) want(t *testing.T, what string, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || r.stdout != stdout || r.stderr != stderr {
		t.Errorf("%s: exit %d\nstdout %q\nstderr %q\nwant exit %d\nstdout %q\nstderr %q",
			what, r.code, r.stdout, r.stderr, code, stdout, stderr)
	}
}

// withStorage runs the program with a store of the test's own in place of the database.
func withStorage(t *testing.T, v variables, st storage.Storage, openErr error, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	open := func(context.Context, string, access, bool) (storage.Storage, error) { return st, openErr }
	env := environment{&stdout, &stderr, v, open}
	return result{code: env.run(t.Context(), args), stdout: stdout.String(), stderr: stderr.String()}
}

func tempFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A group without a command prints its help, and completion prints scripts. An unknown command is one line, with a
// suggestion.
func TestUsage(t *testing.T) {
	help := regexp.MustCompile(`\nUsage:\n  plantstore.*\n  plantstore ([a-z]+ )?\[command\]\n\nExamples:\n  plantstore `)
	for _, args := range []string{"", "help", "-h", "--help", "token", "token -h", "help token", "plants", "db"} {
		got := plantstore(t, nil, strings.Fields(args)...)
		if got.code != 0 || got.stderr != "" || !help.MatchString(got.stdout) {
			t.Errorf("plantstore %s: %+v, want its help", args, got)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := plantstore(t, nil, "completion", shell)
		if got.code != 0 || !strings.Contains(got.stdout, "__complete") {
			t.Errorf("completion %s: %.200s%s", shell, got.stdout, got.stderr)
		}
	}
	for args, want := range map[string]string{
		"grow":                  `plantstore: unknown command "grow"; see plantstore --help`,
		"tokn":                  `plantstore: unknown command "tokn"; did you mean "token"?`,
		"token isue":            `plantstore token: unknown command "isue"; did you mean "issue"?`,
		"Toekn":                 `plantstore: unknown command "Toekn"; did you mean "token"?`,
		"--nope":                "plantstore: unknown flag: --nope; see plantstore --help",
		"token --nope":          "plantstore token: unknown flag: --nope; see plantstore token --help",
		"sandbox x":             "plantstore sandbox: expected a command after --; see plantstore sandbox --help",
		"sandbox --":            "plantstore sandbox: expected a command after --; see plantstore sandbox --help",
		"sandbox x -- y":        "plantstore sandbox: expected a command after --; see plantstore sandbox --help",
		"sandbox --env A -- x":  `plantstore sandbox: --env is "A": use NAME=VALUE, and a command after --`,
		"sandbox --env =A -- x": `plantstore sandbox: --env is "=A": use NAME=VALUE, and a command after --`,
		"sandbox --env A=":      `plantstore sandbox: --env is "A=": use NAME=VALUE, and a command after --`,
		"version x":             `plantstore version: expected arguments: none; got: ["x"]; see plantstore version --help`,
	} {
		plantstore(t, nil, strings.Fields(args)...).want(t, args, 2, "", want+"\n")
	}
}

// eachCommand calls do for every command of the tree.
func eachCommand(do func(cmd *cobra.Command)) {
	root := environment{}.commands()
	for all := []*cobra.Command{root}; len(all) > 0; all = all[1:] {
		if all[0].Name() == "help" || all[0].Name() == "completion" { // made by cobra
			continue
		}
		do(all[0])
		all = append(all, all[0].Commands()...)
	}
}

// Every command prints its help to standard output, with what it does, examples, and its flags with their variables.
func TestHelp(t *testing.T) {
	n := 0
	eachCommand(func(cmd *cobra.Command) {
		n++
		words := strings.Fields(cmd.CommandPath())[1:]
		for _, args := range [][]string{append(slices.Clone(words), "-h"), append([]string{"help"}, words...)} {
			got := plantstore(t, nil, args...)
			if got.code != 0 || got.stderr != "" || !strings.HasPrefix(got.stdout, cmd.Long+"\n\nUsage:\n  "+cmd.UseLine()) ||
				!strings.Contains(got.stdout, "\nExamples:\n"+cmd.Example) {
				t.Errorf("%q: %+v", args, got)
			}
			cmd.Flags().VisitAll(func(fl *pflag.Flag) {
				names := strings.Join(fl.Annotations[variableKey], " or ")
				if !regexp.MustCompile(` --` + fl.Name + `\s(?s:.*)` + names).MatchString(got.stdout) {
					t.Errorf("%q lacks --%s or its variable %s:\n%s", args, fl.Name, names, got.stdout)
				}
			})
			for line := range strings.Lines(got.stdout) {
				if len(line) > 116 {
					t.Errorf("%q prints a long line: %s", args, line)
				}
			}
		}
		if !regexp.MustCompile(`^[A-Z][a-zA-Z ,]{5,70}$`).MatchString(cmd.Short) && cmd.HasParent() {
			t.Errorf("%s in short is %q", cmd.CommandPath(), cmd.Short)
		}
	})
	if n < 25 {
		t.Errorf("%d commands", n)
	}
}

// Every example is a valid command line: its flags exist and their values can be parsed.
func TestExamples(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			var args []string
			for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
				if i%2 == 1 {
					args = append(args, part)
				} else {
					args = append(args, strings.Fields(part)...)
				}
			}
			root := environment{}.commands()
			called, _, err := root.Find(args[1:])
			if err != nil || args[0] != "plantstore" || !strings.HasPrefix(called.CommandPath(), cmd.CommandPath()) {
				t.Errorf("the example %q of %s calls %s, %v", line, cmd.CommandPath(), called.CommandPath(), err)
				continue
			}
			called.RunE = func(*cobra.Command, []string) error { return nil }
			root.SetArgs(negativesLast(root, args[1:]))
			if err := root.Execute(); err != nil {
				t.Errorf("the example %q of %s: %v", line, cmd.CommandPath(), err)
			}
			words := regexp.MustCompile(` --\S+ [A-Z]+`).ReplaceAllString(called.Use, "")
			if n := called.Flags().NArg(); !strings.ContainsAny(words, ".[") && n != strings.Count(words, " ") {
				t.Errorf("the example %q of %s has %d arguments", line, cmd.CommandPath(), n)
			}
		}
	})
}

// An error is one line that cannot control a terminal, and its exit code tells what happened.
func TestExitCodes(t *testing.T) {
	response := func(status int, number int32) error {
		return &client.Error{Status: status, Number: number, Message: "m"}
	}
	const check = "; check --url, and that the service is running"
	refused := &url.Error{Op: "Get", URL: "http://x", Err: errors.New("refused")}
	for _, test := range []struct {
		err  error
		code int
		text string
		json string
	}{
		{errors.New("failed"), 1, "failed", `{"message":"failed","exit":1}`},
		{errors.Join(errors.New("one"), errors.New("two")), 1, "one; two", `{"message":"one; two","exit":1}`},
		{errors.New("red \x1b[31m"), 1, `red \x1b[31m`, `{"message":"red \\x1b[31m","exit":1}`},
		{usagef("--rate is %q", "x"), 2, `--rate is "x"`, `{"message":"--rate is \"x\"","exit":2}`},
		{response(404, 40401), 3, "40401: m", `{"error":40401,"message":"m","exit":3}`},
		{fmt.Errorf("%w (tried 2 times)", response(404, 40401)), 3, "40401: m (tried 2 times)",
			`{"error":40401,"message":"m (tried 2 times)","exit":3}`},
		{response(404, 40403), 3, "40403: m", `{"error":40403,"message":"m","exit":3}`},
		{response(409, 40901), 4, "40901: m", `{"error":40901,"message":"m","exit":4}`},
		{fmt.Errorf("%w: x", token.ErrUnknown), 3, "no such token: x", `{"message":"no such token: x","exit":3}`},
		{response(400, 40009), 4, "40009: m", `{"error":40009,"message":"m","exit":4}`},
		{response(412, 41201), 4, "41201: m", `{"error":41201,"message":"m","exit":4}`},
		{token.ErrNameTaken, 4, "a token with this name exists", `{"message":"a token with this name exists","exit":4}`},
		{refused, 5, `Get "http://x": refused` + check, `{"message":"Get \"http://x\": refused` + check + `","exit":5}`},
		{&url.Error{Op: "Get", URL: "http://x", Err: context.Canceled}, 1, `Get "http://x": context canceled`,
			`{"message":"Get \"http://x\": context canceled","exit":1}`},
		{&url.Error{Op: "Get", URL: "http://x", Err: context.DeadlineExceeded}, 5,
			`Get "http://x": context deadline exceeded` + check,
			`{"message":"Get \"http://x\": context deadline exceeded` + check + `","exit":5}`},
		{response(401, 40103), 6, "40103: m", `{"error":40103,"message":"m","exit":6}`},
		{response(429, 42901), 6, "42901: m", `{"error":42901,"message":"m","exit":6}`},
		{response(403, 0), 6, "HTTP status 403: m", `{"message":"HTTP status 403: m","exit":6}`},
		{fmt.Errorf("%w: %w", client.ErrUnknown, response(401, 40103)), 1, client.ErrUnknown.Error() + ": 40103: m",
			`{"message":"` + client.ErrUnknown.Error() + `: 40103: m","exit":1}`},
		{fmt.Errorf("%w: %w", client.ErrUnknown, refused), 1, client.ErrUnknown.Error() + `: Get "http://x": refused`,
			`{"message":"` + client.ErrUnknown.Error() + `: Get \"http://x\": refused","exit":1}`},
	} {
		db := tempFile(t, "")
		withStorage(t, nil, nil, test.err, "token", "list", "--db", db).want(t, test.text, test.code, "",
			"plantstore token list: "+test.text+"\n")
		withStorage(t, nil, nil, test.err, "token", "list", "--db", db, "--json").want(t, test.text, test.code, "",
			test.json+"\n")
	}
	const json = `{"message":"unknown flag: --nope; see plantstore token list --help","exit":2}` + "\n"
	plantstore(t, nil, "token", "list", "--nope", "--json").want(t, "an unknown flag before --json", 2, "", json)
	plantstore(t, nil, "token", "list", "--json", "--nope").want(t, "an unknown flag after --json", 2, "", json)
	got := plantstore(t, variables{"PLANTSTORE_JSON": "true", "PLANTSTORE_DB": "/nowhere"}, "token", "list")
	if got.code != 1 || !strings.HasPrefix(got.stderr, `{"message":"--db must be`) {
		t.Errorf("an error with PLANTSTORE_JSON: %+v", got)
	}
	for variable, json := range map[string]bool{"": false, "true": true} {
		got := plantstore(t, variables{"PLANTSTORE_JSON": variable}, "plants", "list", "--limit", "abc")
		if got.code != 2 || strings.HasPrefix(got.stderr, `{"message":"--limit is`) != json {
			t.Errorf("PLANTSTORE_JSON=%s plants list --limit abc: %+v", variable, got)
		}
	}
}

// fullDisk fails every write.
type fullDisk struct{}

var errFullDisk = errors.New("no space left on device")

func (fullDisk) Write([]byte) (int, error) { return 0, errFullDisk }

// toFullDisk runs the program with a standard output that cannot be written.
func toFullDisk(t *testing.T, v variables, args ...string) {
	t.Helper()
	var stderr bytes.Buffer
	code := run(t, v, fullDisk{}, &stderr, args...)
	if code != 1 || !regexp.MustCompile(`\bno space left on device(","exit":1})?\n$`).MatchString(stderr.String()) {
		t.Errorf("%q to a full disk: exit %d, %q", args, code, stderr.String())
	}
}
