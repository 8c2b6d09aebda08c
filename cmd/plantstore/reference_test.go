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

var update = flag.Bool("update", false, "write the tables of flags to docs/configuration.md")

// docs/configuration.md has every flag of every command.
func TestFlagReference(t *testing.T) {
	const page, begin, end = "../../docs/configuration.md", "<!-- flags:begin -->\n", "<!-- flags:end -->"
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

// flagReference returns a table of the flags of serve, and one of the other commands with the names of their flags.
func flagReference() string {
	var serve, others strings.Builder
	eachCommand(func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "plantstore ")
		var names []string
		cmd.LocalNonPersistentFlags().VisitAll(func(fl *pflag.Flag) {
			switch {
			case fl.Name == "help" || fl.Name == "version":
			case name == "serve":
				fmt.Fprintf(&serve, "| %s |\n", flagRow(fl))
			default:
				names = append(names, "`--"+fl.Name+"`")
			}
		})
		if len(names) > 0 {
			fmt.Fprintf(&others, "| `%s` | %s |\n", name, strings.Join(names, " "))
		}
	})
	return "### `plantstore serve`\n\n| flag | default | |\n|---|---|---|\n" + serve.String() +
		"\n### Other commands\n\n| command | flags |\n|---|---|\n" + others.String()
}

func flagRow(fl *pflag.Flag) string {
	_, usage := pflag.UnquoteUsage(fl)
	if names := fl.Annotations[variableKey]; names != nil {
		usage = strings.TrimSuffix(usage, "\n("+strings.Join(names, " or ")+")")
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
	return strings.Join([]string{"`--" + fl.Name + "`", initial, usage}, " | ")
}
