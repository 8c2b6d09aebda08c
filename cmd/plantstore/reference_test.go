package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the tables of flags to docs/operations.md")

// docs/operations.md has every flag of every command.
func TestFlagReference(t *testing.T) {
	const page, begin, end = "../../docs/operations.md", "<!-- flags:begin -->\n", "<!-- flags:end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	got, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	want := flagReference()
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s does not have the flags of the commands: run make generate", page)
	}
}

// flagReference returns one table of the flags of serve and one of those of all other commands. A row is for all
// commands in which a flag has the same meaning.
func flagReference() string {
	var serve, others []string
	commands := map[string][]string{}
	eachCommand(func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "plantstore ")
		cmd.LocalNonPersistentFlags().VisitAll(func(fl *pflag.Flag) {
			if fl.Name == "help" || fl.Name == "version" {
				return
			}
			row := flagRow(fl)
			if name == "serve" {
				serve = append(serve, row)
				return
			}
			if commands[row] == nil {
				others = append(others, row)
			}
			commands[row] = append(commands[row], "`"+name+"`")
		})
	})
	slices.Sort(others)
	var b strings.Builder
	b.WriteString("### `plantstore serve`\n\n| flag | variable | default | |\n|---|---|---|---|\n")
	for _, row := range serve {
		fmt.Fprintf(&b, "| %s |\n", row)
	}
	b.WriteString("\n### Other commands\n\n| flag | variable | default | | commands |\n|---|---|---|---|---|\n")
	for _, row := range others {
		fmt.Fprintf(&b, "| %s | %s |\n", row, strings.Join(commands[row], ", "))
	}
	return b.String()
}

func flagRow(fl *pflag.Flag) string {
	var variables []string
	value, usage := pflag.UnquoteUsage(fl)
	if names := fl.Annotations[variableKey]; names != nil {
		usage = strings.TrimSuffix(usage, "\n("+strings.Join(names, " or ")+")")
		variables = append(variables, "`"+strings.Join(names, "` or `")+"`")
	}
	usage = strings.ReplaceAll(strings.ReplaceAll(usage, "\n", " "), "|", `\|`)
	initial := fl.DefValue
	if before, after, ok := strings.Cut(usage, "(default: "); ok {
		usage, initial = strings.TrimSpace(before), strings.TrimSuffix(after, ")")
	} else if slices.Contains([]string{"", "false", "[]"}, initial) {
		initial = ""
	} else {
		initial = "`" + initial + "`"
	}
	name := "`--" + fl.Name + "`"
	if value != "" {
		name = "`--" + fl.Name + " " + strings.ToUpper(value) + "`"
	}
	return strings.Join([]string{name, strings.Join(variables, ""), initial, usage}, " | ")
}
