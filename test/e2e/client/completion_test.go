package client

import (
	"slices"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// The shells' scripts, which the library writes, ask the command for values: of commands and flags.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"pl": "plants", "token ": "issue list revoke rotate show update",
		"plants export --format ": "csv ndjson", "token issue --name ": "", "help tok": "token",
	} {
		out, errs, code := testkit.Run(t, nil, append([]string{"__completeNoDesc"}, strings.Split(words, " ")...)...)
		values, _, _ := strings.Cut(out, ":4")
		values, _, _ = strings.Cut(values, ":6")
		got := strings.Fields(values)
		if slices.Sort(got); strings.Join(got, " ") != want || code != 0 {
			t.Errorf("plantstore %s completes to %q, want %q; exit %d, %s", words, out, want, code, errs)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, errs, code := testkit.Run(t, nil, "completion", shell); code != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("completion %s: exit %d, %s%.200s", shell, code, errs, out)
		}
	}
}
