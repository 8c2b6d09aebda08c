package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore/internal/testkit"
	"plantstore/internal/testkit/missing"
)

// shells are programs that load the completion script of a shell and print how it completes the last of the words in
// WORDS, which are separated by newlines.
var shells = map[string]string{
	"bash": `
compopt() { :; }
source /usr/share/bash-completion/bash_completion
source <(plantstore completion bash)
mapfile -t COMP_WORDS <<<"$WORDS"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE="${COMP_WORDS[*]}" COMP_TYPE=9
COMP_POINT=${#COMP_LINE}
__start_plantstore
printf '%s\n' "${COMPREPLY[@]}"`,
	"zsh": `
compdef() {}
source <(plantstore completion zsh)
_describe() { print -rl -- "${completions[@]}" }
_arguments() { print FILES }
words=("${(@f)WORDS}") CURRENT=${#words}
_plantstore`,
	"fish": `
plantstore completion fish | source
complete --do-complete (string join ' ' -- $WORDS)`,
}

// complete returns the values, without their descriptions, that a shell suggests for the last of the words.
func complete(t *testing.T, shell string, words ...string) []string {
	t.Helper()
	cmd := exec.Command(shell, "-c", shells[shell])
	separator := "\n"
	if shell == "fish" {
		separator = " " // fish completes a line
	}
	cmd.Env = append(os.Environ(), "WORDS="+strings.Join(append([]string{"plantstore"}, words...), separator),
		"PATH="+filepath.Dir(testkit.Binary)+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "LANG=C.UTF-8")
	cmd.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(cmd.Dir, "a-file.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) > 0 {
		t.Errorf("%s: %q: %v\n%s", shell, words, err, out)
	}
	var values []string
	for line := range strings.Lines(string(out)) {
		value, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if shell == "zsh" {
			value = strings.ReplaceAll(value, `\:`, "\x00")
			value, _, _ = strings.Cut(value, ":") // the description
			value = strings.ReplaceAll(value, "\x00", ":")
		}
		if value, _, _ = strings.Cut(value, "  ("); value != "" { // bash
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return values
}

func TestCompletion(t *testing.T) {
	testkit.Long(t)
	for shell := range shells {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				missing.Report(t, "%v", err)
			}
			if _, err := os.Stat("/usr/share/bash-completion/bash_completion"); shell == "bash" && err != nil {
				missing.Report(t, "%v", err)
			}
			for _, test := range []struct{ words, want string }{
				{"pl", "plants"},
				{"token ", "issue list revoke rotate show update"},
				{"plants export --format ", "csv ndjson"},
				{"token issue --name ", ""},
				{"help tok", "token"},
			} {
				got := strings.Join(complete(t, shell, strings.Split(test.words, " ")...), " ")
				if got != test.want {
					t.Errorf("plantstore %s completes to %q, want %q", test.words, got, test.want)
				}
			}
		})
	}
}
