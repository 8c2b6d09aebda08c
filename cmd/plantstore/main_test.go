package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/internal/store"
)

// variables is an environment without the variables of the process that runs the tests.
type variables map[string]string

func (v variables) get(name string) string { return v[name] }

type result struct {
	stdout, stderr string
	code           int
}

// plantstore runs the program in this process.
func plantstore(t *testing.T, v variables, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr, v.get)
	return result{stdout.String(), stderr.String(), code}
}

// want compares the exit code and the whole output.
func (r result) want(t *testing.T, what string, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || r.stdout != stdout || r.stderr != stderr {
		t.Errorf("%s: exit %d\nstdout %q\nstderr %q\nwant exit %d\nstdout %q\nstderr %q",
			what, r.code, r.stdout, r.stderr, code, stdout, stderr)
	}
}

// withStore runs the program with a store of the test's own in place of the database.
func withStore(t *testing.T, st store.Store, openErr error, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := environment{&stdout, &stderr, variables{}.get, func(context.Context, string, bool) (store.Store, error) {
		return st, openErr
	}}
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

func TestUsage(t *testing.T) {
	var b bytes.Buffer
	usage(&b)
	text := b.String()
	for _, c := range commands {
		if !regexp.MustCompile(`(?m)^  plantstore ` + c.name + ` +` + c.summary + `$`).MatchString(text) {
			t.Errorf("the usage lacks %q:\n%s", c.name, text)
		}
	}
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{nil, 2, "", text},
		{[]string{"help"}, 0, text, ""},
		{[]string{"-h"}, 0, text, ""},
		{[]string{"--help"}, 0, text, ""},
		{[]string{"grow"}, 2, "", "plantstore: unknown command \"grow\"\n\n" + text},
		{[]string{"token"}, 2, "", "plantstore: unknown command \"token\"\n\n" + text},
		{[]string{"token", "issues"}, 2, "", "plantstore: unknown command \"token\"\n\n" + text},
		{[]string{"issue", "token"}, 2, "", "plantstore: unknown command \"issue\"\n\n" + text},
		{[]string{"version", "x"}, 2, "", "plantstore version: expected arguments: none; got: [\"x\"]\n"},
	} {
		plantstore(t, nil, test.args...).want(t, strings.Join(test.args, " "), test.code, test.stdout, test.stderr)
	}
}

func TestVersion(t *testing.T) {
	pattern := regexp.MustCompile(`^plantstore (\S+) go\S+ \w+/\w+\n$`)
	if got := plantstore(t, nil, "version"); got.code != 0 || got.stderr != "" || !pattern.MatchString(got.stdout) {
		t.Errorf("version: %+v", got)
	}
	version = "v1.2.3"
	defer func() { version = "" }()
	if got := plantstore(t, nil, "version"); !strings.HasPrefix(got.stdout, "plantstore v1.2.3 go") {
		t.Errorf("version of a release: %+v", got)
	}
}

// Every command prints its help to standard output, with each flag and its variable.
func TestHelp(t *testing.T) {
	for _, c := range commands {
		if c.name == "version" {
			continue
		}
		got := plantstore(t, nil, append(strings.Fields(c.name), "-h")...)
		if got.code != 0 || got.stderr != "" || !strings.HasPrefix(got.stdout, "Usage: plantstore "+c.name+" ") {
			t.Errorf("%s -h: %+v", c.name, got)
		}
	}
	const want = "Usage: plantstore token list [flags]\n\nLists the tokens, oldest first, without their secrets.\n\n" +
		"  --db path\n        database: the path of a file, or a postgres:// URL (PLANTSTORE_DB, default plantstore.db)\n" +
		"  --json \n        print a JSON array (PLANTSTORE_JSON)\n"
	plantstore(t, nil, "token", "list", "-h").want(t, "token list -h", 0, want, "")
}

// A command's error is printed in one line that cannot control a terminal.
func TestErrors(t *testing.T) {
	defer func(all []command) { commands = all }(commands)
	for _, test := range []struct {
		err    error
		code   int
		stderr string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{errUsage, 2, ""},
		{errors.New("failed"), 1, "plantstore fail: failed\n"},
		{errors.Join(errors.New("one"), errors.New("two")), 1, "plantstore fail: one; two\n"},
		{errors.New("red \x1b[31m"), 1, "plantstore fail: red \\x1b[31m\n"},
	} {
		commands = []command{{"fail", "", func(context.Context, environment, []string) error { return test.err }}}
		plantstore(t, nil, "fail").want(t, "fail", test.code, "", test.stderr)
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
	code := run(t.Context(), args, io.Writer(fullDisk{}), &stderr, v.get)
	if code != 1 || !strings.HasSuffix(stderr.String(), ": no space left on device\n") {
		t.Errorf("%q to a full disk: exit %d, %q", args, code, stderr.String())
	}
}
