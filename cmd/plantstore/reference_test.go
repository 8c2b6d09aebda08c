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

// ofClients are the flags of every command that uses a running service.
var ofClients = []string{"`--json`", "`--token`", "`--token-file`", "`--url`"}

// flagReference returns a table of the flags of serve, and two of the other commands with the names of their flags.
func flagReference() string {
	var serve, clients, others strings.Builder
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
		isOfClients := func(name string) bool { return slices.Contains(ofClients, name) }
		if own := slices.DeleteFunc(slices.Clone(names), isOfClients); len(own)+len(ofClients) == len(names) {
			fmt.Fprintf(&clients, "| `%s` | %s|\n", name, strings.Join(append(own, ""), " "))
		} else if len(names) > 0 {
			fmt.Fprintf(&others, "| `%s` | %s |\n", name, strings.Join(names, " "))
		}
	})
	const head = "\n\n| command | flags |\n|---|---|\n"
	return "### `plantstore serve`\n\n| flag | default | |\n|---|---|---|\n" + serve.String() +
		"\n### Clients of a service\n\nAll have " + strings.Join(ofClients, ", ") + ". Others:" + head + clients.String() +
		"\n### Other commands" + head + others.String()
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
