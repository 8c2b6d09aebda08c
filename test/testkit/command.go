package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Run runs a command of the product to its end.
func Run(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*Deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, append(os.Environ(), env...)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if strings.Contains(errs.String(), "goroutine ") {
		t.Errorf("plantstore %q printed a stack trace:\n%s", args, errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// IssueToken issues a token in a database, which a server may be using.
func IssueToken(t testing.TB, db string, args ...string) string {
	t.Helper()
	out, errs, code := Run(t, nil, append([]string{"token", "issue", "--db", db}, args...)...)
	if code != 0 || !regexp.MustCompile(`^plant_[0-9A-Za-z]{36}\n$`).MatchString(out) {
		t.Fatalf("token issue %q: exit %d, stdout %q, stderr %q", args, code, out, errs)
	}
	return strings.TrimSpace(out)
}

// Fill imports n plants with one name into a store.
func Fill(t testing.TB, to Target, n int, name string) {
	t.Helper()
	var text bytes.Buffer
	text.WriteString("id,name\n")
	for id := range n {
		fmt.Fprintf(&text, "%d,%s\n", id, name)
	}
	env := []string{"PLANTSTORE_URL=" + to.URL, "PLANTSTORE_TOKEN=" + to.Token}
	if _, errs, code := Run(t, env, "plants", "import", writeFile(t, "plants.csv", text.Bytes())); code != 0 {
		t.Fatal(errs)
	}
}
